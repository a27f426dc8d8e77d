// What `prepare` takes from an interval on the way: the state at virtual checkpoints, as the recorder would have stored
// it there, and contents of messages.
#include <algorithm>
#include <cstring>

#include "checkpoint/address_space.h"
#include "supervisor/replay/replayer.h"
#include "supervisor/tier/registers.h"

namespace redrive {

// Called before each event.
Result<Step> Replayer::prepare_before(EventIndex index, const Event& event) {
  TRY(take_payloads());
  while (const auto due = due_->next(index, event.kind)) {
    if (due->at_birth) {
      TRY(capture(due->interval, 0, false));
      continue;
    }
    TRY_STEP(run_batch(event.thread == batch_.thread));
    Thread* const trigger = thread_of(event);
    if (!trigger) return no_thread(index, event);
    ASSIGN_OR_RETURN(const StopKind stop, run_to_stop(*trigger));
    trigger->ahead = stop;
    if (stop == StopKind::syscall) TRY(capture(due->interval, event.thread, true));
  }
  if (event.receive && !event.receive->logged && options_.preparation->wants_payload({what_.unit, index})) {
    wanted_payloads_.add(index, event.receive->parts);
  }
  return Step::as_recorded();
}

// Of receives that have been executed: their bytes are there.
Result<void> Replayer::take_payloads() {
  const EventIndex done = trace_.intervals(what_.unit).at(what_.start).first_event + executed_;
  return wanted_payloads_.take(
      done, [&](const MessagePart& part) { return store_.payload(part); },
      [&](EventIndex receiver, const Bytes& payload) {
        return options_.preparation->add_payload({what_.unit, receiver}, payload);
      });
}

// `at_entry`: the trigger is stopped at a syscall's entry, whose event is the interval's first.
Result<void> Replayer::capture(IntervalIndex interval, ThreadSerial trigger, bool at_entry) {
  ASSIGN_OR_RETURN(UnitState state, state_for(interval, trigger, at_entry));
  const ReadImage read = [&](const AddPages& add) -> Result<Bytes> {
    for (const auto& saved : state.processes) {
      const Stub& stub = unit_.processes.at(saved.process).stub;
      const auto gate = gates_.find(saved.process);
      Bytes original;
      const auto all = [](const Mapping&) { return true; };
      TRY(visit_pages(stub.memory(), saved.mappings, all,
                      [&](const Mapping& mapping, Address address, std::span<const uint8_t> pages) -> Result<void> {
                        original.assign(pages.begin(), pages.end());
                        if (gate != gates_.end()) gate->second->undo_patches(address, original);
                        state.note_zero_pages(saved.process, mapping, address, original);
                        return add(saved.process, address, original);
                      }));
    }
    Encoder header;
    encode(state, header);
    return header.take();
  };
  return options_.preparation->add_image(what_.unit, interval, read);
}

Result<UnitState> Replayer::state_for(IntervalIndex interval, ThreadSerial trigger, bool at_entry) const {
  UnitState state;
  state.trigger = trigger;
  state.next_thread = next_thread_;
  state.next_process = next_process_;
  for (const auto& [serial, process] : unit_.processes) {
    ProcessState saved;
    saved.process = serial;
    saved.pid = trace_.intervals(what_.unit).at(interval).pid;
    saved.brk = process.brk;
    saved.stack_limit = stack_limit(process.stub.pid());
    const ProcessSerial owner = memory_owner(serial);
    if (owner == serial) {
      ASSIGN_OR_RETURN(saved.mappings, program_mappings(serial));
      saved.descriptors = *process.descriptors;
    } else {
      saved.memory_of = owner;
    }
    state.processes.push_back(std::move(saved));
  }
  for (const auto& [serial, thread] : threads_) {
    ThreadState saved;
    saved.thread = serial;
    saved.process = thread.process;
    const bool entering = at_entry && serial == trigger;
    saved.in_syscall = !entering && thread.stopped_at_syscall;
    saved.regs = entering ? before_syscall(thread.regs) : thread.regs;
    saved.xstate = get_xstate(thread.tid);
    state.threads.push_back(std::move(saved));
  }
  return state;
}

// What the recording's process had mapped there, with the trace's names for files and shared memory.
Result<std::vector<Mapping>> Replayer::program_mappings(ProcessSerial serial) const {
  const Stub& stub = unit_.processes.at(serial).stub;
  const auto gate = gates_.find(serial);
  ASSIGN_OR_RETURN(auto mappings, read_mappings(stub.pid()));
  ASSIGN_OR_RETURN(const auto stacks, growing_mappings(stub.pid()));
  std::erase_if(mappings, [&](const Mapping& m) {
    return (m.start < kGateEnd && kGateStart < m.end) || (gate != gates_.end() && gate->second->owns(m.start, m.end));
  });
  for (auto& mapping : mappings) {
    const auto object = mapping.shared ? unit_.shared.object_of(mapping.device, mapping.inode) : std::nullopt;
    if (object) {
      mapping.shared_object = *object;
      mapping.object_size = unit_.shared.size_of(*object);
    } else if (mapping.inode != 0) {
      const std::string copy = mapping.name.substr(mapping.name.rfind('/') + 1);
      const auto& files = trace_.files();
      const auto file =
          std::find_if(files.begin(), files.end(), [&](const auto& entry) { return entry.second.copy == copy; });
      if (file == files.end()) return Error{"a re-driven process has mapped " + mapping.name + ", which is no copy"};
      mapping.file = file->first;
      if (mapping.shared) mapping.shared_object = unit_.shared.shows(mapping.file);
      mapping.name = file->second.path;
    }
    if (stacks.contains(mapping.start)) mapping.name = "[stack]";
  }
  return mappings;
}

}  // namespace redrive
