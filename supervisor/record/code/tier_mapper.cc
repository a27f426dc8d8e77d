#include "supervisor/record/code/tier_mapper.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/pass_fd.h"
#include "checkpoint/stub.h"
#include "supervisor/record/kernel/stack_piece.h"
#include "supervisor/tier/registers.h"

namespace redrive {

gate::InjectedCall map_trampolines_at(Address at) {
  return {SYS_mmap,
          {at, kTrampolinesSize, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, ~0ull, 0}};
}

namespace {

// A replay's stub is there: the program must find the place taken.
gate::InjectedCall reserve_stub_pages() {
  constexpr uint64_t kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  return {SYS_mmap, {kGateStart, kGateEnd - kGateStart, PROT_NONE, kFlags, ~0ull, 0}};
}

}  // namespace

// Gives the process these files, which it cannot open by name, through a socket of its own. `call` executes a system
// call there; the memory below the stack pointer is used meanwhile. Returns the descriptors; none if that is not
// possible.
Result<std::vector<uint64_t>> TierMapper::hand_over(const Tracee& tracee, Address stack_pointer,
                                                    std::initializer_list<const SharedMemory*> files,
                                                    const Call& call) {
  struct Scratch {
    int ends[2];
    Receiving receiving;
  };
  const Memory& memory = tracee.memory;
  const StackPiece piece(memory, stack_pointer, sizeof(Scratch));
  const Address at = piece.at();
  std::vector<uint64_t> received;
  Scratch scratch{};
  if (!piece.readable()) return received;
  ASSIGN_OR_RETURN(int64_t result, call(SYS_socketpair, {AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, at}));
  if (result != 0 || !memory.read(at, scratch.ends, sizeof scratch.ends)) return received;
  const Fd end(static_cast<int>(syscall(SYS_pidfd_getfd, tracee.pidfd, scratch.ends[0], 0)));
  const Address message = at + offsetof(Scratch, receiving);
  scratch.receiving = Receiving::at(message);
  for (const SharedMemory* file : files) {
    int descriptor = -1;
    if (!end || !file->send(end.get())) break;
    memory.write(at, &scratch, sizeof scratch);
    const auto socket = static_cast<uint64_t>(scratch.ends[1]);
    ASSIGN_OR_RETURN(result, call(SYS_recvmsg, {socket, message, MSG_CMSG_CLOEXEC}));
    const Address its = message + offsetof(Receiving, descriptor);
    if (result != 1 || !memory.read(its, &descriptor, sizeof descriptor) || descriptor < 0) break;
    received.push_back(static_cast<uint64_t>(descriptor));
  }
  if (received.size() < files.size()) {
    for (const uint64_t descriptor : std::exchange(received, {})) TRY(call(SYS_close, {descriptor}));
  }
  for (const int socket : scratch.ends) TRY(call(SYS_close, {static_cast<uint64_t>(socket)}));
  return received;
}

Result<TierMapper::Mapped> TierMapper::map(const Tracee& tracee, GateArena& arena, Unit* unit,
                                           const user_regs_struct& regs, Address vdso,
                                           const std::vector<Mapping>& mappings) {
  const Memory& memory = tracee.memory;
  auto gate = std::make_shared<RecordedGate>(arena, unit);
  const Address instruction = vdso_syscall(memory, vdso);
  if (!instruction || !gate->take_slot()) return Mapped{};
  const Bytes loader = arena.loader(gate->slot_memory());
  Bytes covered(loader.size());
  if (!memory.read(vdso, covered.data(), covered.size())) return Mapped{};
  const auto call = [&](long number, std::initializer_list<uint64_t> args) {
    return calls_.call_at(tracee.caller, instruction, regs, number, args);
  };
  user_regs_struct before = regs;
  before.r12 = before.r13 = before.r14 = ~0ull;
  Address start = vdso;
  if (!tracer_.sees_tracer(tracee.pid)) {
    ASSIGN_OR_RETURN(const auto files,
                     hand_over(tracee, regs.rsp, {&arena.code(), &arena.clock(), &gate->slot_memory()}, call));
    if (files.empty()) return Mapped{};
    before.r12 = files[0], before.r13 = files[1], before.r14 = files[2];
    start += arena.header().load_opened - arena.header().load;
  }
  if (!memory.write(vdso, loader.data(), loader.size())) return Mapped{};
  constexpr uint64_t kShared = MAP_SHARED | MAP_FIXED_NOREPLACE;
  constexpr uint64_t kReadWrite = PROT_READ | PROT_WRITE;
  std::vector<gate::InjectedCall> calls{
      {SYS_close, {gate::kOpened}},
      {SYS_mmap, {gate::kClock, gate::kClockSize, kReadWrite, kShared, gate::kClockFile, 0}},
      {SYS_close, {gate::kClockFile}},
      {SYS_mmap, {gate::kSlot, gate::kSlotSize, kReadWrite, kShared, gate::kSlotFile, 0}},
      {SYS_close, {gate::kSlotFile}}};
  const bool stub_is_free = !std::ranges::any_of(
      mappings, [](const Mapping& mapping) { return mapping.start < kGateEnd && kGateStart < mapping.end; });
  if (stub_is_free) calls.push_back(reserve_stub_pages());
  const auto trampolines = Gate::gap_near(ranges_of(mappings), regs.rip);
  if (trampolines) calls.push_back(map_trampolines_at(*trampolines));
  calls.push_back({SYS_brk, {}});
  ASSIGN_OR_RETURN(const user_regs_struct made, calls_.make_from(arena, tracee.caller, before, start, calls));
  memory.write(vdso, covered.data(), covered.size());
  gate->slot_memory().close();
  const auto brk = static_cast<int64_t>(made.rdi);
  if (made.rip != arena.header().boundary || is_error(brk)) {
    for (const uint64_t file : {made.r12, made.r13, made.r14}) {
      if (!is_error(static_cast<int64_t>(file))) TRY(call(SYS_close, {file}));
    }
    return Mapped{};
  }
  if (stub_is_free) gate->reserve_stub();
  if (trampolines) gate->add_trampolines(memory, *trampolines);
  return Mapped{std::move(gate), static_cast<Address>(brk)};
}

Result<TierMapper::Slot> TierMapper::inherit(const Tracee& tracee, RecordedGate& gate, const user_regs_struct& regs) {
  GateArena& arena = gate.arena();
  const auto map_slot = [&](uint64_t flags, uint64_t fd) {
    return gate::InjectedCall{SYS_mmap,
                              {gate::kSlot, gate::kSlotSize, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0}};
  };
  bool mapped = false;
  if (gate.take_slot()) {
    user_regs_struct before = regs;
    before.r12 = ~0ull;
    std::vector<gate::InjectedCall> calls{map_slot(MAP_SHARED, gate::kOpened), {SYS_close, {gate::kOpened}}};
    if (tracer_.sees_tracer(tracee.pid)) {
      arena.set_slot_path(gate.slot_memory().path());
      calls.insert(calls.begin(), {SYS_open, {GateArena::kSlotPath, O_RDWR | O_CLOEXEC}});
    } else {
      const auto call = [&](long number, std::initializer_list<uint64_t> args) {
        gate::InjectedCall injected{static_cast<uint64_t>(number), {}};
        std::copy(args.begin(), args.end(), injected.args);
        return calls_.make(arena, tracee.caller, regs, {injected});
      };
      ASSIGN_OR_RETURN(const auto files, hand_over(tracee, regs.rsp, {&gate.slot_memory()}, call));
      if (!files.empty()) before.r12 = files.front();
    }
    ASSIGN_OR_RETURN(const user_regs_struct made,
                     calls_.make_from(arena, tracee.caller, before, arena.header().inject, calls));
    mapped = !is_error(static_cast<int64_t>(made.rdi));
    if (!mapped && made.r12 != before.r12) TRY(calls_.make(arena, tracee.caller, regs, {{SYS_close, {made.r12}}}));
    gate.slot_memory().close();
  }
  if (!mapped) {
    // The child's sites are patched: it gets a slot that serves nothing.
    TRY(calls_.make(arena, tracee.caller, regs, {map_slot(MAP_PRIVATE | MAP_ANONYMOUS, ~0ull)}));
    gate::Slot nothing{};
    nothing.want_stop = gate::kServeNothing;
    tracee.memory.put(gate::kSlot, nothing);
  }
  tracer_.set_regs(tracee.caller.tid, regs);
  return mapped ? Slot::own : Slot::serves_nothing;
}

}  // namespace redrive
