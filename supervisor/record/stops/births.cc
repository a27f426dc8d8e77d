#include "supervisor/record/stops/births.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "supervisor/record/checkpoints/intervals.h"
#include "supervisor/record/memory/object_views.h"
#include "supervisor/record/stops/checkpointer.h"
#include "supervisor/record/stops/ends.h"
#include "supervisor/record/stops/late_writes.h"
#include "supervisor/record/stops/programs.h"
#include "supervisor/record/stops/stop_handler.h"
#include "supervisor/record/stops/turns.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/record/tracees/tracees.h"
#include "supervisor/tier/births.h"

namespace redrive {
namespace {

// Calls of other threads that have not come to their exits may have written into the memory that a child has just got,
// or not: a replay, which writes at their exits, must know.
void note_written_for_child(const Thread& parent, const Memory& memory, std::vector<MemoryWrite>& writes) {
  for (const auto& [serial, thread] : parent.process->unit->threads) {
    const bool same_memory = thread->process->memory_id == parent.process->memory_id;
    if (thread != &parent && same_memory) note_pending_outputs(*thread, memory, writes);
  }
}

}  // namespace

void Births::start(Thread& thread) {
  user_regs_struct regs;
  if (thread.process->inherited) {
    if (!tracer_.get_regs(thread.tid, regs)) return;
    regs.orig_rax = ~0ull;
    if (!programs_.inherit_gate(thread, regs, std::exchange(thread.process->inherited, nullptr))) return;
  }
  if (!control_.get_regs(thread, regs)) return;
  if (const auto mask = std::exchange(thread.mask_at_birth, {})) tracer_.set_signal_mask(thread.tid, *mask);
  if (std::exchange(thread.call.hides_untraced, false)) {
    regs.rdi |= CLONE_UNTRACED;
    control_.set_regs(thread, regs);
  }
  ends_.ask_for_exit(thread);
  if (std::exchange(thread.image_at_birth, false)) checkpointer_.store_now(*thread.process->unit, thread, &regs);
  control_.resume_user(thread, regs, std::get<Thread::Ready>(thread.state).rewound);
}

void Births::see_birth(Thread& thread) {
  thread.mask_at_birth = thread.signals.keep_off_birth(tracer_, thread.tid);
  control_.resume(thread, Resume::to_syscall_exit);
  if (const auto stop = ends_.wait_stop(thread.tid)) handler_.handle_amid(Stopped{thread.tid, *stop});
}

void Births::hide_untraced(Thread& thread) {
  const uint64_t flags = birth_request(*thread.call.row, thread.call.args, thread.process->memory).flags;
  if (!(flags & CLONE_UNTRACED)) return;
  thread.call.hides_untraced = true;
  const uint64_t others = flags & ~uint64_t{CLONE_UNTRACED};
  if (thread.call.row->special == Special::clone3) {
    thread.process->memory.put(thread.call.args[0] + offsetof(clone_args, flags), others);
  } else {
    user_regs_struct regs = thread.entry;
    regs.rdi = others;
    control_.set_regs(thread, regs);
  }
}

void show_untraced(const Thread& parent, const Memory& memory) {
  const Address at = parent.call.args[0] + offsetof(clone_args, flags);
  uint64_t flags = 0;
  if (memory.get(at, flags)) memory.put(at, flags | CLONE_UNTRACED);
}

void Births::born(Thread& parent, pid_t tid) {
  Process& process = *parent.process;
  Unit& unit = *process.unit;
  const BirthRequest request = birth_request(*parent.call.row, parent.call.args, process.memory);
  const uint64_t flags = request.flags;
  Event* event = unit.log.open_of(parent.serial);
  ASSERT(event);
  event->result = tid;
  Thread* child = nullptr;
  if (flags & CLONE_THREAD) {
    child = &tracees_.add_thread(process, tid, parent.fds);
    event->child_thread = child->serial;
  } else {
    const bool same_unit = (flags & CLONE_VM) || process.shares_memory;
    const EventRef birth{unit.id, unit.log.next() - 1};
    Unit& home = same_unit ? unit : tracees_.add_unit(birth, tid);
    Process& made = tracees_.add_process(home, tid, flags & CLONE_VM ? &process : nullptr);
    if (flags & CLONE_FILES) {
      parent.fds->in_several_memories |= !(flags & CLONE_VM);
      if (process.gate) process.gate->use_table(nullptr);
    }
    made.brk = process.brk;
    if (!(flags & CLONE_VM)) *made.descriptors = *process.descriptors;
    made.vdso = process.vdso;
    made.shares_memory = process.shares_memory;
    made.objects = process.objects;
    made.private_views = process.private_views;
    made.opens_memory = process.opens_memory;
    made.dumpable = process.dumpable;
    made.maps_growing = process.maps_growing;
    made.borrows_memory = flags & CLONE_VM;
    if (flags & CLONE_VM) {
      made.gate = process.gate;
    } else if (process.gate) {
      made.inherited = std::make_shared<RecordedGate>(*arena_, *process.gate, &home);
    }
    made.command = process.command;
    made.segv = process.segv;
    made.ill = process.ill;
    made.trap = process.trap;
    made.stand_ins = process.stand_ins;
    made.vdso_patch = process.vdso_patch;
    made.not_copied = process.not_copied;
    child = &tracees_.add_thread(made, tid, parent.fds);
    if (!(flags & CLONE_VM)) note_written_for_child(parent, made.memory, event->child_writes);
    if (flags & CLONE_CHILD_SETTID && (flags & CLONE_NEWPID || forks_into_namespace(process.pid))) {
      // A replay writes the number that the parent is told; the child has another one in its own namespace.
      const int32_t own = pid_in_own_namespace(tid);
      const auto* bytes = reinterpret_cast<const uint8_t*>(&own);
      event->child_writes.push_back(
          {request.child_tid, sizeof own, MemoryWrite::Kind::data, Bytes(bytes, bytes + sizeof own)});
    }
    if (same_unit) {
      event->child_thread = child->serial;
      if (!(flags & CLONE_VM)) made.stays = Join{unit.id, 0, unit.log.next(), tid, object_views_.shared_by(process)};
    } else {
      event->child_unit = home.id;
      if (!unit.place.is_home()) placement_.send(tid, home.place);
      intervals_.begin(home, CheckpointKind::fork, made, 0);
      const uint64_t at_ns = unit.clock.interval_ns();
      event->send = Send{0, 0, at_ns};
      child->image_at_birth = messages_.keeps_birth(unit.id, at_ns, home.id);
    }
  }
  if (!(flags & CLONE_FILES)) separate_descriptors(*child, process.gate.get());
  if (event->child_thread) intervals_.note_birth(unit, flags & CLONE_THREAD);
  if (parent.call.hides_untraced && parent.call.row->special == Special::clone3) {
    parent.call.hides_untraced = false;
    show_untraced(parent, process.memory);
    if (!(flags & CLONE_VM)) show_untraced(parent, child->process->memory);
  }
  child->call.hides_untraced = parent.call.hides_untraced;
  child->confinement = parent.confinement;
  if (flags & CLONE_CHILD_CLEARTID) child->clear_tid = request.child_tid;
  child->blocked = parent.blocked;
  child->read_implies_exec = parent.read_implies_exec;
  child->counter_mode = parent.counter_mode;
  if (!(flags & CLONE_VM)) child->rseq = parent.rseq;
  child->mask_at_birth = parent.mask_at_birth;
  child->processors = parent.processors;
  if (flags & CLONE_VFORK) {
    parent.state = Thread::Blocked{};
    parent.xstate = tracer_.get_xstate(parent.tid);
  }
  if (flags & CLONE_CHILD_SETTID && child->process->unit == &unit) let_write_number(tid);
  control_.resume(parent, Resume::to_syscall_exit);
  if (flags & CLONE_VFORK) turns_.give_up(unit);
}

// A child writes its own number when the kernel first runs it, right before its first stop (schedule_tail(),
// kernel/sched/core.c). Processes that share that memory must find it there after the birth, as in a replay. So the
// parent stays in the kernel until the child has stopped, or was killed; the child's stop is handled in its turn.
void Births::let_write_number(pid_t child) { stops_.await(child); }

void note_birth(const Thread& parent, int64_t result, const Memory& memory, Event& event) {
  const BirthRequest request = birth_request(*parent.call.row, parent.call.args, memory);
  const auto note = [&](uint64_t flag, Address address) {
    MemoryWrite write{address, sizeof(int32_t), MemoryWrite::Kind::data, Bytes(sizeof(int32_t))};
    if ((request.flags & flag) && memory.read(address, write.data.data(), write.length)) {
      event.writes.push_back(std::move(write));
    }
  };
  if (result > 0) {
    note(CLONE_PARENT_SETTID, request.parent_tid);
    const bool is_child = !(request.flags & (CLONE_THREAD | CLONE_PARENT));
    if (is_child) parent.process->false_faults.note_child(request.exit_signal, static_cast<pid_t>(result));
  }
  note(CLONE_PIDFD, request.pidfd);  // before the kernel looks at the control group, and at limits
}

}  // namespace redrive
