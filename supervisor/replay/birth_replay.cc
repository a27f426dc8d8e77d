#include "supervisor/replay/birth_replay.h"

#include <optional>

#include "supervisor/tier/births.h"

namespace redrive {

Result<void> bear(const Redriving& redriving, MessageStore& store, const RedrivenThread& parent, EventIndex index,
                  const Event& event, const SyscallRow& row) {
  RedrivenUnit& unit = redriving.unit;
  const BirthRequest request = birth_request(row, event.args, unit.memory(parent));
  const uint64_t flags = request.flags;
  const EventRef self{redriving.what.unit, index};
  const bool elsewhere = event.child_unit != 0;
  if (elsewhere && !store.wants_birth(self)) return {};
  RestoredProcess& process = unit.process(parent.process);
  std::optional<Stub> born;
  pid_t tid = 0;
  if (flags & CLONE_THREAD) {
    ASSIGN_OR_RETURN(tid, process.stub.add_thread(parent.tid));
  } else {
    ASSIGN_OR_RETURN(born, process.stub.fork(parent.tid, flags & CLONE_VM));
    tid = born->pid();
  }
  user_regs_struct regs = parent.regs;
  regs.rax = 0;
  regs.orig_rax = ~0ull;
  if (request.stack) regs.rsp = request.stack;
  if (flags & CLONE_SETTLS) regs.fs = 0, regs.fs_base = request.tls;
  std::shared_ptr<Gate> gate = redriving.gates.shared(parent.process);
  user_regs_struct physical = regs;
  if (gate) physical.rip = gate->physical(regs.rip);
  if (!set_regs(tid, physical)) return errno_error("cannot set registers");
  const auto id = static_cast<int32_t>(event.result);
  const Stub& its = born ? *born : process.stub;
  if (flags & CLONE_CHILD_SETTID) its.memory().put(request.child_tid, id);
  ProcessSerial owner = parent.process;
  if (born) {
    // What cannot be written here the kernel could not write either.
    for (const auto& write : event.child_writes)
      its.memory().write(write.address, write.data.data(), write.data.size());
    if (gate && !(flags & CLONE_VM)) {
      ASSIGN_OR_RETURN(gate, redriving.gates.inherit(*gate, its));
    }
    auto descriptors =
        flags & CLONE_VM ? process.descriptors : std::make_shared<LocalDescriptors>(*process.descriptors);
    if (elsewhere) {
      ASSIGN_OR_RETURN(ReleasedStub released, std::move(*born).hand_over());
      store.publish(self, ForkedChild{std::move(released), process.brk, regs, std::move(descriptors), std::move(gate)});
    } else {
      const auto memory_of =
          flags & CLONE_VM ? std::optional(process.memory_of.value_or(parent.process)) : std::nullopt;
      owner = unit.add(RestoredProcess{std::move(*born), process.brk, id, memory_of, std::move(descriptors)});
      if (gate) redriving.gates.add(owner, std::move(gate));
    }
  }
  if (flags & CLONE_PARENT_SETTID) process.stub.memory().put(request.parent_tid, id);
  if (!elsewhere) unit.add({event.child_thread, owner, tid, false, regs, std::nullopt});
  return {};
}

Result<void> adopt(const Redriving& redriving, MessageStore& store, EventRef fork, int32_t pid) {
  ASSIGN_OR_RETURN(ForkedChild birth, store.birth(fork));
  const pid_t tid = birth.stub.pid;
  ASSIGN_OR_RETURN(Stub stub, Stub::take_over(std::move(birth.stub)));
  redriving.unit.take_first(RestoredProcess{std::move(stub), birth.brk, pid, {}, birth.descriptors}, birth.regs);
  const bool has_gate = birth.gate != nullptr;
  if (has_gate) redriving.gates.add(0, std::move(birth.gate));
  if (!redriving.gates.set_regs(redriving.unit.thread(0), birth.regs)) return errno_error("cannot set registers");
  return has_gate ? Result<void>() : redriving.gates.map({0}, tid);
}

}  // namespace redrive
