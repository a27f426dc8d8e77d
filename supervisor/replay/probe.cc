#include "supervisor/replay/probe.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "checkpoint/address_space.h"
#include "supervisor/tier/code_segments.h"
#include "supervisor/tier/gate.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

constexpr uint8_t kBreakpoint = 0xcc;
constexpr unsigned kRequired = 64;             // places in memory that can be compared
constexpr uint64_t kFlagsOfTracing = 0x10100;  // RF, TF
constexpr size_t kCompared = 15;               // all but rax

constexpr uint64_t kAreaSize = 2 * kPageSize;  // of the comparing code

// What the code reads and writes: the page after it.
struct Data {
  uint64_t rax, flags;             // the thread's, while the code compares
  uint64_t wanted[kCompared + 1];  // rax first, then as in kOrder
  struct {
    uint64_t address, value;
  } required[kRequired];
  uint64_t nothing;  // where unused requirements point to
};

// Registers by their numbers in instructions, except rax, which is 0.
constexpr unsigned long long user_regs_struct::*kOrder[kCompared] = {
    &user_regs_struct::rcx, &user_regs_struct::rdx, &user_regs_struct::rbx, &user_regs_struct::rsp,
    &user_regs_struct::rbp, &user_regs_struct::rsi, &user_regs_struct::rdi, &user_regs_struct::r8,
    &user_regs_struct::r9,  &user_regs_struct::r10, &user_regs_struct::r11, &user_regs_struct::r12,
    &user_regs_struct::r13, &user_regs_struct::r14, &user_regs_struct::r15};

bool counts(unsigned long long user_regs_struct::*reg) {
  return reg == &user_regs_struct::rcx || reg == &user_regs_struct::rsi || reg == &user_regs_struct::rdi;
}

bool step(pid_t tid) {
  for (;;) {
    int status = 0;
    // If the next instruction is a system call, it is not made.
    if (ptrace(PTRACE_SYSEMU_SINGLESTEP, tid, nullptr, nullptr) != 0 || !wait_for(tid, status)) return false;
    siginfo_t info{};
    if (!WIFSTOPPED(status) || WSTOPSIG(status) == (SIGTRAP | 0x80)) return false;
    if (ptrace(PTRACE_GETSIGINFO, tid, nullptr, &info) != 0) return false;
    if (caused_by_instruction(info)) return status >> 8 == SIGTRAP;
  }
}

Result<void> add_move(Calls& calls, Address from, uint64_t length, Address to) {
  return calls.add("move memory in a stub", SYS_mremap, {from, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, to});
}

// Code at `area` that compares, and continues with the moved instructions. Flags are kept in rax meanwhile (lahf,
// seto): the stack below the thread's pointer is the program's.
class ComparingCode {
 public:
  ComparingCode(Address area, const Bytes& moved, const PatchWindow& window, Address place, bool any_count)
      : area_(area) {
    save(offsetof(Data, rax));
    append({0x9f, 0x0f, 0x90, 0xc0});  // lahf; seto %al
    save(offsetof(Data, flags));
    load(offsetof(Data, rax));
    differs(0, offsetof(Data, wanted));
    for (size_t i = 0; i < kCompared; ++i) {
      if (any_count && counts(kOrder[i])) continue;
      differs(static_cast<uint8_t>(i + 1), offsetof(Data, wanted) + (i + 1) * sizeof(uint64_t));
    }
    for (unsigned i = 0; i < kRequired; ++i) {
      const size_t at = offsetof(Data, required) + i * 2 * sizeof(uint64_t);
      load(at);
      append({0x48, 0x8b, 0x00});  // mov (%rax), %rax
      differs(0, at + sizeof(uint64_t));
    }
    restore();
    hit_ = area_ + code_.size();
    append({kBreakpoint});
    append({0xe9});
    const size_t over = code_.size();
    append({0, 0, 0, 0});
    for (const size_t jump : misses_) patch(jump, code_.size());
    restore();
    patch(over, code_.size());
    fits_ = append_moved(code_, area_, moved, window, place);
  }

  const Bytes& code() const { return code_; }
  Address hit() const { return hit_; }
  bool fits() const { return fits_; }

 private:
  void append(std::initializer_list<uint8_t> bytes) { code_.insert(code_.end(), bytes); }
  void append_distance(Address target) {
    const auto distance = static_cast<int32_t>(target - (area_ + code_.size() + 4));
    uint8_t bytes[4];
    std::memcpy(bytes, &distance, sizeof distance);
    code_.insert(code_.end(), std::begin(bytes), std::end(bytes));
  }
  void patch(size_t at, size_t target) {
    const auto distance = static_cast<int32_t>(target - (at + 4));
    std::memcpy(code_.data() + at, &distance, sizeof distance);
  }
  void save(size_t offset) { append({0x48, 0x89, 0x05}), append_distance(area_ + kPageSize + offset); }  // of rax
  void load(size_t offset) { append({0x48, 0x8b, 0x05}), append_distance(area_ + kPageSize + offset); }
  void differs(uint8_t reg, size_t offset) {
    const auto rex = static_cast<uint8_t>(0x48 | (reg >= 8 ? 4 : 0));
    append({rex, 0x39, static_cast<uint8_t>((reg & 7) << 3 | 5)});  // cmp %reg, the word there
    append_distance(area_ + kPageSize + offset);
    append({0x0f, 0x85});  // jne
    misses_.push_back(code_.size());
    append({0, 0, 0, 0});
  }
  void restore() {
    load(offsetof(Data, flags));
    append({0x04, 0x7f, 0x9e});  // add $0x7f, %al; sahf
    load(offsetof(Data, rax));
  }

  Address area_;
  Bytes code_;
  std::vector<size_t> misses_;
  Address hit_ = 0;
  bool fits_ = false;
};

}  // namespace

Result<Probe> Probe::set(const Stub& stub, pid_t tid, const user_regs_struct& wanted, bool any_count) {
  Probe probe(stub, wanted, any_count);
  const Memory& memory = stub.memory();
  ASSIGN_OR_RETURN(const auto mappings, read_mappings(stub.pid()));
  const Mapping* mapping = mapping_at(mappings, wanted.rip);
  CodeSegments segments;
  const bool fits = mapping && wanted.cs == kCodeSegment;  // the code that compares is 64-bit code
  const auto window = fits ? segments.window_at(memory, *mapping, wanted.rip) : std::nullopt;
  const auto gap = Gate::gap_near(ranges_of(mappings), wanted.rip);
  if (window && gap) {
    Bytes moved(window->after);
    if (!memory.read(wanted.rip, moved.data(), moved.size())) return Error{"code cannot be read"};
    const ComparingCode comparison(*gap, moved, *window, wanted.rip, any_count);
    if (comparison.fits()) {
      TRY(stub.map_anonymous(tid, *gap, kAreaSize, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE));
      Data data{};
      data.wanted[0] = wanted.rax;
      for (size_t i = 0; i < kCompared; ++i) data.wanted[i + 1] = wanted.*kOrder[i];
      for (auto& required : data.required) required.address = *gap + kPageSize + offsetof(Data, nothing);
      probe.area_ = *gap;
      probe.hit_ = comparison.hit();
      probe.original_ = moved;
      probe.inserted_ = jump(wanted.rip, *gap, moved.size());
      const bool written =
          memory.write(*gap, comparison.code().data(), comparison.code().size()) && memory.put(*gap + kPageSize, data);
      if (!written) return Error{"code cannot be written"};
    }
  }
  if (!probe.area_) {
    probe.original_.resize(1);
    probe.inserted_ = {kBreakpoint};
    if (!memory.read(wanted.rip, probe.original_.data(), 1)) return Error{"code cannot be read"};
  }
  TRY(probe.leave_window(tid));
  if (mapping && mapping->shared) {
    if (!gap) return Error{"there is no room for a copy of shared code"};
    static_assert(kAreaSize + 2 * kPageSize <= kTrampolinesSize);
    TRY(probe.move_away(tid, *mapping, *gap + kAreaSize));
  }
  if (!probe.insert()) return Error{"code cannot be written"};
  return probe;
}

// A thread that is in the middle of the instructions that a jump is to replace executes the rest of them.
Result<void> Probe::leave_window(pid_t tid) const {
  for (;;) {
    user_regs_struct regs;
    if (!get_regs(tid, regs)) return errno_error("cannot read registers");
    if (regs.rip <= wanted_.rip || regs.rip >= wanted_.rip + original_.size()) return {};
    if (!step(tid)) return Error{"a thread cannot be moved away from where it is to stop"};
  }
}

// A mapping that is split by this becomes one again when its pages are back.
Result<void> Probe::move_away(pid_t tid, const Mapping& mapping, Address away) {
  const AddressRange pages{page_down(wanted_.rip), page_up(wanted_.rip + original_.size())};
  const uint64_t length = pages.end - pages.start;
  Bytes contents(length);
  if (!stub_->memory().read(pages.start, contents.data(), length)) return Error{"code cannot be read"};
  StubCalls calls(*stub_, tid);
  TRY(add_move(calls, pages.start, length, away));
  TRY(calls.map_anonymous(pages.start, length, mapping.protection, MAP_PRIVATE));
  TRY(calls.run());
  if (!stub_->memory().write(pages.start, contents.data(), length)) return Error{"code cannot be written"};
  moved_ = {pages, away, std::move(contents)};
  return {};
}

bool Probe::insert() const { return stub_->memory().write(wanted_.rip, inserted_.data(), inserted_.size()); }

bool Probe::intact() const {
  return holds(wanted_.rip, inserted_) && (!moved_ || holds(moved_->away, moved_->contents));
}

bool Probe::holds(Address address, const Bytes& expected) const {
  Bytes now(expected.size());
  return stub_->memory().read(address, now.data(), now.size()) && now == expected;
}

// What the program has written into the copy is kept.
Result<void> Probe::move_back(Calls& calls) const {
  const Address start = moved_->pages.start;
  const uint64_t length = moved_->contents.size();
  Bytes now(length);
  if (!stub_->memory().read(start, now.data(), length)) return Error{"code cannot be read"};
  if (now != moved_->contents && !stub_->memory().write(moved_->away, now.data(), length)) {
    return Error{"code cannot be written"};
  }
  return add_move(calls, moved_->away, length, start);
}

Probe::Stop Probe::at(user_regs_struct& regs) const {
  if (regs.rip != (area_ ? hit_ : wanted_.rip) + 1) return Stop::elsewhere;
  regs.rip = wanted_.rip;
  user_regs_struct a = regs, b = wanted_;
  a.orig_rax = b.orig_rax = 0;
  a.eflags &= ~kFlagsOfTracing, b.eflags &= ~kFlagsOfTracing;
  if (any_count_) a.rcx = b.rcx, a.rsi = b.rsi, a.rdi = b.rdi;
  return std::memcmp(&a, &b, sizeof a) == 0 ? Stop::wanted : Stop::other_registers;
}

bool Probe::pass(pid_t tid, user_regs_struct regs) const {
  regs.orig_rax = ~0ull;
  if (area_) {
    regs.rip = hit_ + 1;
    return set_regs(tid, regs);
  }
  const bool stepped =
      set_regs(tid, regs) && stub_->memory().write(wanted_.rip, original_.data(), original_.size()) && step(tid);
  return insert() && stepped;
}

bool Probe::require(Address address, uint64_t value) {
  if (!area_ || required_ == kRequired) return false;
  const uint64_t pair[] = {address, value};
  return stub_->memory().put(area_ + kPageSize + offsetof(Data, required) + required_++ * sizeof pair, pair);
}

Result<void> Probe::remove(pid_t tid, const user_regs_struct& regs) const {
  if (!stub_->memory().write(wanted_.rip, original_.data(), original_.size())) return Error{"code cannot be written"};
  if (!set_regs(tid, regs)) return errno_error("cannot set registers");
  StubCalls calls(*stub_, tid);
  if (moved_) TRY(move_back(calls));
  if (area_) TRY(calls.unmap(area_, kAreaSize));
  TRY(calls.run());
  return {};
}

std::vector<AddressRange> Probe::foreign() const {
  std::vector<AddressRange> ranges{{wanted_.rip, wanted_.rip + original_.size()}};
  if (area_) ranges.push_back({area_, area_ + kAreaSize});
  if (moved_) ranges.push_back({moved_->away, moved_->away + moved_->contents.size()});
  return ranges;
}

bool stop_before(pid_t tid, Address address) {
  constexpr uint64_t kFirstLocally = 1;  // in DR7: DR0, at execution
  const auto put = [&](int number, uint64_t value) {
    return ptrace(PTRACE_POKEUSER, tid, offsetof(user, u_debugreg) + static_cast<size_t>(number) * sizeof(uint64_t),
                  value) == 0;
  };
  return put(7, 0) && (!address || (put(0, address) && put(7, kFirstLocally)));
}

bool debug_registers_work() {
  const pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    getppid();
    _exit(0);
  }
  int status = 0;
  const auto is_stopped_by = [&](int signal) {
    return wait_for(child, status) && WIFSTOPPED(status) && WSTOPSIG(status) == signal;
  };
  if (child < 0 || !is_stopped_by(SIGSTOP)) return false;
  const bool set = stop_before(child, reinterpret_cast<Address>(&getppid));
  ptrace(PTRACE_CONT, child, nullptr, nullptr);
  const bool works = is_stopped_by(SIGTRAP) && set;
  if (WIFSTOPPED(status)) {
    kill(child, SIGKILL);
    wait_for(child, status);
  }
  return works;
}

}  // namespace redrive
