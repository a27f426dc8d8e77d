#include "supervisor/replay/image_capture.h"

#include "checkpoint/address_space.h"
#include "supervisor/replay/program_mappings.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

Result<UnitState> state_at(const Redriving& redriving, std::optional<ThreadSerial> entering) {
  const RedrivenUnit& unit = redriving.unit;
  UnitState state;
  state.trigger = entering.value_or(0);
  state.next_thread = unit.next_thread();
  state.next_process = unit.next_process();
  ASSIGN_OR_RETURN(state.processes, capture_processes(redriving));
  for (const auto& [serial, thread] : unit.threads()) {
    ThreadState saved;
    saved.thread = serial;
    saved.process = thread.process;
    const bool enters = serial == entering;
    saved.in_syscall = !enters && thread.stopped_at_syscall;
    saved.read_implies_exec = read_implies_exec(thread.tid);
    saved.regs = enters ? before_syscall(thread.regs) : thread.regs;
    saved.xstate = get_xstate(thread.tid);
    state.threads.push_back(std::move(saved));
  }
  return state;
}

}  // namespace

Result<std::vector<ProcessState>> capture_processes(const Redriving& redriving) {
  const RedrivenUnit& unit = redriving.unit;
  std::vector<ProcessState> processes;
  for (const auto& [serial, process] : unit.processes()) {
    ProcessState saved;
    saved.process = serial;
    saved.pid = process.pid;
    saved.brk = process.brk;
    saved.stack_limit = stack_limit(process.stub.pid());
    const ProcessSerial owner = unit.memory_owner(serial);
    if (owner == serial) {
      ASSIGN_OR_RETURN(saved.mappings, program_mappings(redriving, serial));
      saved.descriptors = *process.descriptors;
    } else {
      saved.memory_of = owner;
    }
    processes.push_back(std::move(saved));
  }
  return processes;
}

Result<void> capture_image(const Redriving& redriving, IntervalIndex interval, std::optional<ThreadSerial> entering,
                           Preparation& preparation) {
  ASSIGN_OR_RETURN(UnitState state, state_at(redriving, entering));
  const ReadImage read = [&](const AddPages& add) -> Result<Bytes> {
    for (const auto& saved : state.processes) {
      const Stub& stub = redriving.unit.stub(saved.process);
      const Gate* const gate = redriving.gates.of(saved.process);
      Bytes original;
      const auto is_stored = [](const Mapping& mapping) { return !mapping.shows_copy(); };
      TRY(visit_pages(stub.memory(), saved.mappings, is_stored,
                      [&](const Mapping& mapping, Address address, std::span<const uint8_t> pages) -> Result<void> {
                        original.assign(pages.begin(), pages.end());
                        if (gate) gate->undo_patches(address, original);
                        state.note_zero_pages(saved.process, mapping, address, original);
                        return add(saved.process, address, original);
                      }));
    }
    Encoder header;
    encode(state, header);
    return header.take();
  };
  return preparation.add_image(redriving.what.unit, interval, read);
}

}  // namespace redrive
