#include "supervisor/record/stops/call_events.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>

#include "base/procfs.h"
#include "checkpoint/address_space.h"
#include "interceptors/payload.h"
#include "supervisor/record/disguise/forced_signals.h"
#include "supervisor/record/memory/descriptor_info.h"
#include "supervisor/record/memory/outside_changes.h"
#include "supervisor/record/memory/packet_rings.h"
#include "supervisor/record/settings/triggers.h"
#include "supervisor/record/stops/births.h"
#include "supervisor/record/stops/foreign_memory.h"
#include "supervisor/record/stops/hidden_copies.h"
#include "supervisor/record/stops/layout_calls.h"
#include "supervisor/record/stops/object_sharing.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/tier/births.h"
#include "supervisor/tier/memory_calls.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

// What a replay needs to read from the trace what a call has written.
uint64_t time_to_read(const std::vector<MemoryWrite>& writes, const RecorderLimits& limits) {
  uint64_t bytes = 0;
  for (const MemoryWrite& write : writes) bytes += write.data.size();
  return static_cast<uint64_t>(limits.replayed_byte_ns * static_cast<double>(bytes));
}

// Whether the thread's call, which ends, has written more of its buffers than it says (SyscallRow::reads_blocks).
bool has_read_blocks(const Thread& thread, int64_t result) {
  if (!thread.call.row->reads_blocks || result <= 0) return false;
  uint64_t capacity = 0;
  for (const Span& span : possible_outputs(thread.call.output_args, thread.call.sizes)) capacity += span.length;
  if (!may_end_in_block(capacity, result)) return false;
  struct stat file {};
  const bool regular =
      stat(descriptor_path(thread.tid, thread.call.args[0]).c_str(), &file) == 0 && S_ISREG(file.st_mode);
  return regular && DescriptorInfo::read(thread.tid, thread.call.args[0]).flags & O_DIRECT;
}

// Whether the call, which has succeeded, has given its thread a descriptor table of its own.
bool unshares_table(const CurrentCall& call) {
  if (call.row->number == SYS_unshare) return call.args[0] & CLONE_FILES;
  return call.row->fd_effect == FdEffect::closes_range && (call.args[2] & CLOSE_RANGE_UNSHARE);
}

}  // namespace

Event& CallEvents::open_event(Thread& thread) {
  Event& event = thread.process->unit->log.open();
  event.thread = thread.serial;
  event.number = static_cast<int32_t>(thread.entry.orig_rax);
  event.args = thread.call.args;
  event.ip = thread.entry.rip;
  event.regs_hash = RegistersHash::of_call(preserved_registers_hash(thread.entry));
  return event;
}

void CallEvents::open_call(Thread& thread, const Memory& memory) {
  const SyscallRow& row = *thread.call.row;
  Event& event = open_event(thread);
  inputs(row, thread.call.args, memory, spans_);
  event.in_hash = hash_spans(spans_, memory, scratch_);
  if (memory.gone()) event.in_hash = 0;  // it was killed before the call: what it would have read is not known
  if (row.number == SYS_restart_syscall) {
    // Its outputs are those of the call that it restarts, whose description is still there.
    thread.call.row = thread.restarting ? thread.restarting : &row;
  } else {
    thread.restarting = nullptr;
    entry_sizes(row, thread.call.args, memory, thread.call.sizes);
    thread.call.output_args = thread.call.args;
  }
  forced_.note_asked(thread, memory);
  thread.process->false_faults.note_queued(row.number, thread.call.args, memory);
  packet_rings_.note_request(thread, memory);
  thread.call.sending.clear();
  if (row.traffic == Traffic::send) {
    Unit& unit = *thread.process->unit;
    const Messages::Place place{unit.id, unit.log.next() - 1, unit.clock};
    messages_.begin_send(message_call(thread, memory), place, spans_, thread.call.sending, event);
  }
}

Messages::Call message_call(Thread& thread, const Memory& memory) {
  RecordedGate* const gate = thread.process->gate.get();
  return {*thread.call.row, thread.call.args, memory, *thread.fds, pidfd_of_table(thread), gate};
}

const Endpoint* CallEvents::endpoint(Thread& thread, int fd_arg) {
  return messages_.endpoint(message_call(thread, thread.process->memory), fd_arg);
}

// At a call's exit: what its event has written becomes a message, or input.
void CallEvents::receive(Thread& thread, int64_t result, const Memory& memory, Event& event) {
  Unit& unit = *thread.process->unit;
  const Messages::Place place{unit.id, unit.log.closing_index(), unit.clock};
  const auto received = messages_.receive(message_call(thread, memory), place, result, event);
  unit.received |= received.message;
  if (received.checkpoint_wanted) unit.checkpoint_wanted = true;
}

void CallEvents::end_messages(const Unit& unit) {
  if (unit.next_interval != 0) messages_.end_unit(unit.id, unit.ended_ns);
}

void CallEvents::close_stopped(Thread& thread, int64_t result) {
  const Process& process = *thread.process;
  const SyscallRow& row = *thread.call.row;
  Event& event = begin_close(thread, result, process.memory, has_read_blocks(thread, result));
  layout_.note(thread, result, event);
  note_effects(thread, result, process.memory, event);
  foreign_.note_descriptors(thread, result);
  if (result >= 0 && unshares_table(thread.call)) separate_descriptors(thread, process.gate.get());
  Messages::forget_closed(message_call(thread, process.memory));
  if (row.new_descriptor == NewDescriptor::connected && process.gate) {
    const auto fd = static_cast<uint32_t>(thread.call.args[0]);
    process.gate->forget_fresh(fd, fd);
  }
  messages_.note_connection(message_call(thread, process.memory), result);
  if (!row.in_process) thread.process->unit->clock.add_replay(limits_.replayed_stop_ns);
  end_close(thread, result, 1, 1);
}

void CallEvents::close_served(Thread& thread, const gate::Record& record, uint64_t times, uint32_t cycle,
                              const Memory& memory) {
  // Where the kernel has written more than the call says, the thread stops right after it.
  const bool wrote_more = thread.call.row->reads_blocks && record.behind;
  const bool stops = wrote_more || record.result == -EFAULT;
  Event& event = begin_close(thread, record.result, stops ? thread.process->memory : memory, wrote_more);
  layout_.note_served(thread, record, event);
  note_effects(thread, record.result, memory, event);
  messages_.note_served(message_call(thread, memory), record);
  end_close(thread, record.result, times, cycle);
}

Event& CallEvents::begin_close(Thread& thread, int64_t result, const Memory& memory, bool wrote_more) {
  const SyscallRow& row = *thread.call.row;
  Event& event = thread.process->unit->log.closing(thread.serial, static_cast<int32_t>(thread.entry.orig_rax));
  event.result = result;
  messages_.end_send(thread.call.sending, result);
  if (triggers_ && result > 0) note_written(thread, result, memory);
  outputs(row, thread.call.output_args, thread.call.sizes, result, memory, spans_, wrote_more);
  if (result > 0 && (row.number == SYS_process_vm_readv || thread.process->opens_memory)) {
    foreign_.show_own_code(thread, static_cast<uint64_t>(result), spans_);
  }
  if (wrote_more || result == -EFAULT || !thread.call.sizes.watched.empty()) keep_writable(thread);
  write_outputs(thread, memory, event);
  thread.call.timeout.left();
  HiddenCopies::leave(thread, event);
  receive(thread, result, memory, event);
  thread.process->unit->clock.add_replay(time_to_read(event.writes, limits_));
  return event;
}

// Of what a call may have written that failed because it could not write everything, or has written more than it says,
// or whose outputs are found by comparison: what lies in memory that the program can write to, as the kernel does. The
// addresses of outputs may be anything then, such as those of code, which is different in a replay.
void CallEvents::keep_writable(const Thread& thread) {
  const Gate* const gate = thread.process->tier();
  std::vector<Span> writable;
  for (const Span& span : spans_) {
    const AddressRange range{span.address, span.address + span.length};
    const auto mappings = mappings_in(thread.process->memory.pid(), range);
    if (!mappings) continue;
    for (const Mapping& mapping : *mappings) {
      if (!(mapping.protection & PROT_WRITE) || (gate && gate->owns(mapping.start, mapping.end))) continue;
      const Address start = std::max(range.start, mapping.start), end = std::min(range.end, mapping.end);
      writable.push_back({start, end - start, span.payload});
    }
  }
  spans_ = std::move(writable);
}

// If the call writes to a descriptor, what the kernel has taken of it. Arrays of buffers are not written themselves.
void CallEvents::note_written(const Thread& thread, int64_t result, const Memory& memory) {
  const SyscallRow& row = *thread.call.row;
  const bool sends = row.traffic == Traffic::send;
  if (!sends && row.file_change != FileChange::writes) return;
  inputs(row, thread.call.args, memory, spans_);
  scratch_.clear();
  for (const auto& span : spans_) {
    if (sends ? !span.payload : spans_.size() > 1 && span.address == thread.call.args[1]) continue;
    memory.append_some(span.address, span.length, scratch_);
  }
  const uint64_t most = sends_datagrams(row) ? scratch_.size() : static_cast<uint64_t>(result);
  const std::string_view written(reinterpret_cast<const char*>(scratch_.data()), std::min(scratch_.size(), most));
  const auto descriptor = static_cast<int>(thread.call.args[static_cast<size_t>(sends ? row.fd_arg : row.changed_arg)]);
  if (!written.empty()) triggers_->note_written(thread.process->unit->id, thread.process->pid, descriptor, written);
}

// Puts what the call has written, at spans_, into its event.
void CallEvents::write_outputs(Thread& thread, const Memory& memory, Event& event) {
  Unit& unit = *thread.process->unit;
  for (const auto& span : spans_) {
    const auto kind = span.payload ? MemoryWrite::Kind::message : MemoryWrite::Kind::data;
    event.writes.push_back({span.address, span.length, kind, unit.log.spare()});
    MemoryWrite& write = event.writes.back();
    if (const uint8_t* bytes = memory.view(span.address, span.length)) {
      write.data.assign(bytes, bytes + span.length);
      continue;
    }
    // A span may be longer than what was written, and go beyond mapped memory.
    write.data.clear();
    memory.append_some(span.address, span.length, write.data);
    if (!write.data.empty() || !span.length) {
      write.length = write.data.size();
      continue;
    }
    event.writes.pop_back();
    if (thread.process->memory.gone()) continue;  // it was killed, and does not find what the call has written
    findings_.add_unsure(
        unit, "the output of " + call_name(thread.call.row->number, thread.call.args) + " could not be read");
  }
}

void CallEvents::note_object_change(Thread& thread, std::optional<int64_t> result, Event& event) {
  if (!thread.call.changes_object) return;
  object_sharing_.note_change(thread, result, event);
  outside_.report_changes();  // the call's own change is not one of these
  thread.call.changes_object = 0;
}

// What the recorder knows of the process and its unit changes with the call.
void CallEvents::note_effects(Thread& thread, int64_t result, const Memory& memory, Event& event) {
  const SyscallRow& row = *thread.call.row;
  note_object_change(thread, result, event);
  if (row.special == Special::write_process) foreign_.note_write(thread, result, event);
  if (is_birth(row) && result != 0 && !restarts(result)) note_birth(thread, result, memory, event);
  if (thread.call.asked && result == 0) forced_.has_asked(thread);
  if (result > 0 && thread.process->opens_memory) {
    foreign_.note_written_memory(thread, static_cast<uint64_t>(result), event);
  }
  if (row.special == Special::set_tid_address) thread.clear_tid = thread.call.args[0];
  if (row.special == Special::personality) {
    const auto implies = read_implies_exec_set_by(thread.call.args, result);
    thread.read_implies_exec = implies.value_or(thread.read_implies_exec);
  }
  if (row.special == Special::modify_ldt && result == 0) {
    const auto written = descriptor_written(thread.call.args, memory);
    if (written) apply(*written, *thread.process->descriptors);
  }
}

void CallEvents::end_close(Thread& thread, int64_t result, uint64_t times, uint32_t cycle) {
  Unit& unit = *thread.process->unit;
  const SyscallRow& row = *thread.call.row;
  thread.restarting = restarts(result) ? &row : nullptr;
  // A fork that starts again has not happened. A call that sleeps has done all that it could.
  if (!restarts(result) || row.may_block) thread.turns.got_on();
  unit.end_state.clear();  // an execve that failed
  unit.log.close(row.test && !restarts(result), times, cycle);
}

}  // namespace redrive
