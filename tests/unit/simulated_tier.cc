#include "tests/unit/simulated_tier.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "checkpoint/stub.h"
#include "interceptors/inprocess/spans.h"
#include "interceptors/patch_window.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/tier/gate.h"
#include "tests/unit/unit_test.h"

extern "C" const uint8_t redrive_gate_code[];

namespace redrive {
namespace {

constexpr uint64_t kReported = SYS_getpid;

// What comes one after the other at `entry`; an instruction each.
enum WriterPlace : uint64_t { kEnters, kDecides, kStamps, kPublishes, kReturns };

gate::Registers saved(const user_regs_struct& r) {
  return {r.rax, r.rdi, r.rsi, r.rdx, r.r10, r.r8,     r.r9,  r.rbx, r.rbp,
          r.r12, r.r13, r.r14, r.r15, r.rsp, r.eflags, r.rcx, r.r11};
}

// False if the supervisor has taken the number of the sleep away, and the slot with it.
bool end_sleep(gate::Slot& slot, uint64_t number) {
  return __atomic_compare_exchange_n(&slot.asleep, &number, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

// Whether both say that the same call was made in vain.
bool same(const gate::Record& a, const gate::Record& b) {
  const auto said = [](const gate::Record& r) {
    const gate::Registers& g = r.regs;
    return std::array<uint64_t, 21>{r.size,
                                    r.thread,
                                    r.site,
                                    g.rax,
                                    g.rdi,
                                    g.rsi,
                                    g.rdx,
                                    g.r10,
                                    g.r8,
                                    g.r9,
                                    g.rbx,
                                    g.rbp,
                                    g.r12,
                                    g.r13,
                                    g.r14,
                                    g.r15,
                                    g.rsp,
                                    r.fs_base,
                                    static_cast<uint64_t>(r.result),
                                    r.before,
                                    r.after};
  };
  return said(a) == said(b) && std::memcmp(&a + 1, &b + 1, a.size - sizeof a) == 0;
}

}  // namespace

// ---- Memory

size_t SimulatedMemory::copy(Address at, size_t size,
                             const std::function<void(uint8_t* page, size_t done, size_t length)>& one) const {
  size_t done = 0;
  while (done < size) {
    const size_t offset = (at + done) % kPageSize, length = std::min(size - done, kPageSize - offset);
    const auto page = pages_.find(at + done - offset);
    if (page == pages_.end()) break;
    one(page->second.data() + offset, done, length);
    done += length;
  }
  return done;
}

size_t SimulatedMemory::read_some(Address from, void* to, size_t size) const {
  return copy(from, size, [&](const uint8_t* page, size_t done, size_t length) {
    std::memcpy(static_cast<uint8_t*>(to) + done, page, length);
  });
}

bool SimulatedMemory::write(Address to, const void* from, size_t size) const {
  return copy(to, size, [&](uint8_t* page, size_t done, size_t length) {
           std::memcpy(page, static_cast<const uint8_t*>(from) + done, length);
         }) == size;
}

MappedFrom::MappedFrom(int file, size_t size, bool writable) : size_(size) {
  void* const data = mmap(nullptr, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, file, 0);
  REQUIRE_NE(data, MAP_FAILED);
  data_ = static_cast<uint8_t*>(data);
}

MappedFrom::~MappedFrom() { munmap(data_, size_); }

// ---- Mapping the tier

// The stack holds no arguments and no environment, and an auxiliary vector that says where the vDSO is. In the vDSO is
// a syscall instruction.
SimulatedTier::SimulatedTier(Address stack) : memory_(std::make_shared<SimulatedMemory>()) {
  const uint64_t words[] = {0, 0, 0, AT_SYSINFO_EHDR, kVdso, AT_NULL, 0};
  const uint8_t instruction[] = {0x0f, 0x05};
  memory_->map(stack);
  memory_->map(kVdso);
  memory_->map(kVdso + kPageSize);
  memory_->write(stack, words, sizeof words);
  memory_->write(kVdso + kPageSize, instruction, sizeof instruction);
}

SimulatedTier::SimulatedTier(const SimulatedTier& parent)
    : memory_(std::make_shared<SimulatedMemory>(*parent.memory_)),
      code_(parent.code_),
      clock_(parent.clock_),
      slot_(parent.slot_) {}

bool SimulatedTier::executes_at(Address ip) const {
  return Gate::executes_at(ip) || (ip >= kVdso && ip < kVdso + kPageSize);
}

// The loader was written over the vDSO. After it are the paths of the files.
SimulatedTier::Step SimulatedTier::load(user_regs_struct& regs) {
  const auto& of_loader = *reinterpret_cast<const gate::Header*>(redrive_gate_code);
  const Address paths = kVdso + (of_loader.load_end - of_loader.load);
  const Memory memory(-1, memory_);
  const auto open_next = [&](uint64_t index, int flags) {
    const std::string path = memory.string(paths + index * gate::kMostPath);
    files_[next_file_] = Fd(open(path.c_str(), flags | O_CLOEXEC));
    REQUIRE_MESSAGE(files_[next_file_], path);
    return next_file_++;
  };
  regs.r12 = open_next(0, O_RDONLY);
  regs.r13 = open_next(1, O_RDWR);
  regs.r14 = open_next(2, O_RDWR);
  code_ = std::make_shared<MappedFrom>(files_[regs.r12].get(), gate::kCommonSize, false);
  regs.rip = header().inject;
  return Step::on;
}

// The calls that the recorder has ordered.
SimulatedTier::Step SimulatedTier::inject(user_regs_struct& regs) {
  int64_t result = 0;
  for (; regs.rbp != regs.rbx; regs.rbp += sizeof(gate::InjectedCall)) {
    result = make(in_code<gate::InjectedCall>(regs.rbp), regs);
    if (result < 0) break;
  }
  regs.rdi = static_cast<uint64_t>(result);
  regs.rip = header().boundary - kSyscallSize;
  return Step::on;
}

int64_t SimulatedTier::make(const gate::InjectedCall& call, user_regs_struct& regs) {
  const auto file = [&](uint64_t arg) {
    return arg == gate::kOpened      ? regs.r12
           : arg == gate::kClockFile ? regs.r13
           : arg == gate::kSlotFile  ? regs.r14
                                     : arg;
  };
  switch (call.number) {
    case SYS_open:
      REQUIRE_EQ(call.args[0], gate::kOrders + offsetof(gate::Orders, slot_path));
      files_[next_file_] = Fd(open(in_code<gate::Orders>(gate::kOrders).slot_path, O_RDWR | O_CLOEXEC));
      regs.r12 = next_file_++;
      return files_[regs.r12] ? static_cast<int64_t>(regs.r12) : -ENOENT;
    case SYS_close:
      return files_.erase(file(call.args[0])) ? 0 : -EBADF;
    case SYS_brk:
      return 0x1000000;
    case SYS_mmap: {
      if (call.args[0] == kGateStart) return static_cast<int64_t>(kGateStart);
      const auto opened = files_.find(file(call.args[4]));
      if (opened == files_.end()) return -EBADF;
      auto& mapping = call.args[0] == gate::kSlot ? slot_ : clock_;
      REQUIRE((call.args[0] == gate::kSlot || call.args[0] == gate::kClock));
      mapping = std::make_shared<MappedFrom>(opened->second.get(), call.args[1], true);
      return static_cast<int64_t>(call.args[0]);
    }
    default:
      FAIL("no such call is injected here");
      return -ENOSYS;
  }
}

// ---- Serving calls

void SimulatedTier::jump_to(user_regs_struct& regs) const {
  regs.rcx = regs.rip;
  regs.rip = header().entry + kEnters;
}

gate::Record& SimulatedTier::at_head() const { return *reinterpret_cast<gate::Record*>(ring(*slot()) + slot()->head); }

bool SimulatedTier::owns_slot(const user_regs_struct& regs, const Frame& frame) const {
  return frame.in_kernel && (regs.rbx == 0 || slot()->asleep == regs.rbx);
}

void SimulatedTier::enter(user_regs_struct& regs, Frame& frame) {
  gate::Slot& s = *slot();
  s.site = regs.rcx;
  s.regs = saved(regs);
  s.phase = gate::Phase::before;
  frame = {};
  frame.number = static_cast<int>(regs.rax);
  frame.site = s.site;
  regs.rsp = gate::kStack + gate::kStackSize;
  regs.rip = header().entry + kDecides;
}

// Writes what is known of the call before it is made. False if it must stop.
bool SimulatedTier::begin(user_regs_struct& regs, Frame& frame, std::chrono::steady_clock::time_point now) {
  gate::Slot& s = *slot();
  s.stops_behind = 0;
  if (s.want_stop || (s.others_wait && s.spins >= gate::kMostSpins) || s.regs.rax >= gate::kCalls) return false;
  frame.call = &in_code<gate::Table>(gate::kTable).calls[s.regs.rax];
  const gate::Call& call = *frame.call;
  if (call.serve == gate::Serve::never || (s.restricted[s.regs.rax / 64] >> s.regs.rax % 64 & 1)) return false;
  const bool may_sleep = call.serve == gate::Serve::sleeps, sleeps = may_sleep && !s.others_wait;
  s.sleeps += may_sleep;
  if (may_sleep && !sleeps) {
    if (call.timeout == gate::kNoArg) return false;
    frame.tried = gate::argument(s.regs, call.timeout) != 0;
  }
  gate::Record& record = at_head();
  uint64_t size = sizeof record, room = size;
  record = {};
  for (uint8_t i = 0; i < call.spans; ++i) {
    const gate::Span& span = call.span[i];
    const uint64_t address = gate::argument(s.regs, span.arg);
    if (!address) continue;
    const uint64_t length = gate::argument(s.regs, span.other);
    room += sizeof(gate::Piece) + gate::padded(length);
    if (room > gate::kRingSize - s.head) return false;
    if (!span.before) continue;
    auto* const piece = reinterpret_cast<gate::Piece*>(reinterpret_cast<uint8_t*>(&record) + size);
    *piece = {address, length};
    REQUIRE_EQ(memory_->read_some(address, piece + 1, length), length);
    size += sizeof *piece + gate::padded(length);
    ++record.before;
  }
  if (room > gate::kRingSize - s.head) return false;
  record.size = static_cast<uint32_t>(size);
  record.repeat = record.cycle = 1;
  record.thread = s.thread;
  record.site = s.site;
  record.regs = s.regs;
  frame.sends = call.send;
  if (frame.sends) {
    stamp(record, now);
    s.pending = s.head + 1;
  }
  if (frame.tried) syscall_arg(regs, call.timeout) = 0;
  s.phase = gate::Phase::kernel;
  regs.rbx = sleeps ? s.sleeps : 0;
  if (sleeps) __atomic_store_n(&s.asleep, s.sleeps, __ATOMIC_SEQ_CST);
  regs.rip = sleeps ? header().sleeps : header().executed - kSyscallSize;
  frame.in_kernel = true;
  return true;
}

void SimulatedTier::stamp(gate::Record& record, std::chrono::steady_clock::time_point now) {
  gate::Slot& s = *slot();
  const bool notes = ++s.unnoted >= in_code<gate::Orders>(gate::kOrders).notes_every;
  if (notes) s.unnoted = 0;
  record.time_ns = notes ? since_boot_ns(now) : 0;
  record.stamp = __atomic_add_fetch(&reinterpret_cast<gate::Clock*>(clock_->data())->now, 1, __ATOMIC_SEQ_CST);
}

// Completes the record, except for its stamp. False if the call must stop after all.
bool SimulatedTier::record_result(user_regs_struct& regs, Frame& frame) {
  gate::Slot& s = *slot();
  const gate::Call& call = *frame.call;
  const auto result = static_cast<int64_t>(regs.rax);
  if (frame.tried && result == call.timed_out) return false;
  gate::Record& record = at_head();
  for (uint8_t i = 0; i < call.spans; ++i) {
    const gate::Span& span = call.span[i];
    if (!span.after || !gate::argument(s.regs, span.arg) || result < 0) continue;
    auto* const piece = reinterpret_cast<gate::Piece*>(reinterpret_cast<uint8_t*>(&record) + record.size);
    *piece = {gate::argument(s.regs, span.arg), static_cast<uint64_t>(result)};
    std::memset(piece + 1, 0, piece->length);
    record.size += static_cast<uint32_t>(sizeof *piece + gate::padded(piece->length));
    ++record.after;
  }
  record.result = result;
  s.regs.rax = regs.rax;
  s.spins = result <= 0 && s.spin_site == s.site ? s.spins + 1 : 0;
  s.spin_site = s.site;
  return true;
}

// Whether the last record says the same: then it stands for this call too.
bool SimulatedTier::continues_series(const gate::Record& record) const {
  const gate::Slot& s = *slot();
  if (s.series == 0 || s.series > s.head) return false;
  auto& last = *reinterpret_cast<gate::Record*>(ring(*slot()) + s.head - s.series);
  uint32_t count = last.repeat;
  return !(count & gate::kTaken) && same(last, record) &&
         __atomic_compare_exchange_n(&last.repeat, &count, count + 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

void SimulatedTier::leave(user_regs_struct& regs, Frame& frame) {
  gate::Slot& s = *slot();
  const gate::Registers& r = s.regs;
  regs.rax = r.rax, regs.rdi = r.rdi, regs.rsi = r.rsi, regs.rdx = r.rdx, regs.r10 = r.r10, regs.r8 = r.r8;
  regs.r9 = r.r9, regs.rbx = r.rbx, regs.rbp = r.rbp, regs.r12 = r.r12, regs.r13 = r.r13, regs.r14 = r.r14;
  regs.r15 = r.r15, regs.rsp = r.rsp, regs.eflags = r.flags, regs.rcx = r.rcx, regs.r11 = r.r11;
  s.phase = gate::Phase::outside;
  regs.rip = s.target;
  frame = {};
  frame.stops_here = s.target == s.site;
}

SimulatedTier::Step SimulatedTier::step(user_regs_struct& regs, Frame& frame,
                                        std::chrono::steady_clock::time_point now) {
  if (regs.rip == kVdso) return load(regs);
  const gate::Header& at = header();
  if (regs.rip == at.inject) return inject(regs);
  gate::Slot& s = *slot();
  if (regs.rip == at.executed - kSyscallSize) return Step::call;
  if (regs.rip == at.executed) {
    if (regs.rbx && !end_sleep(s, regs.rbx)) {
      regs.rdi = regs.rax;
      regs.rip = at.boundary - kSyscallSize;
    } else {
      regs.rbx = 0;
      ++regs.rip;
    }
  } else if (regs.rip == at.executed + 1) {
    s.phase = gate::Phase::after;
    regs.rip = at.finished;
  } else if (regs.rip == at.finished) {
    frame.in_kernel = false;
    s.target = s.site;
    regs.rip = record_result(regs, frame) ? at.entry + kStamps : at.leave;
  } else if (regs.rip == at.boundary - kSyscallSize) {
    regs.rax = kReported;
    return Step::report;
  } else if (regs.rip == at.sleeps) {
    const bool stays = (s.others_wait || s.want_stop) && end_sleep(s, regs.rbx);
    regs.rip = stays ? at.leave : at.executed - kSyscallSize;
    if (!stays) return Step::on;
    s.phase = gate::Phase::before;
    s.pending = 0;
    frame.in_kernel = false;
  } else if (regs.rip == at.leave) {
    leave(regs, frame);
  } else {
    switch (regs.rip - at.entry) {
      case kEnters:
        enter(regs, frame);
        break;
      case kDecides:
        s.target = s.site;
        if (!begin(regs, frame, now)) regs.rip = at.leave;
        break;
      case kStamps: {
        gate::Record& record = at_head();
        const bool in_vain = frame.call->test && record.result <= 0;
        if (in_vain && continues_series(record)) {
          regs.rip = at.entry + kReturns;
          return Step::served;
        }
        if (!frame.sends) stamp(record, now);
        s.series = in_vain ? record.size : 0;
        regs.rip = at.entry + kPublishes;
        break;
      }
      case kPublishes:
        s.last = s.head;
        s.head += at_head().size;
        s.pending = 0;
        regs.rip = at.entry + kReturns;
        return Step::served;
      case kReturns:
        s.regs.r11 = s.regs.flags;
        s.target = s.want_stop ? at.boundary - kSyscallSize : s.site + kSyscallSize;
        regs.rip = at.leave;
        break;
      default:
        FAIL("nothing is at this place of the tier's code");
    }
  }
  return Step::on;
}

}  // namespace redrive
