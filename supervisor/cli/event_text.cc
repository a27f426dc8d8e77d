#include "supervisor/cli/event_text.h"

#include <fmt/format.h>
#include <sys/syscall.h>

#include <cstring>

#include "interceptors/syscall_table.h"

namespace redrive {
namespace {

std::string signal_name(int number) {
  const char* known = sigabbrev_np(number);
  return known != nullptr ? fmt::format("SIG{}", known) : fmt::format("SIG_{}", number);
}

const char* trap_name(int32_t number) {
  switch (static_cast<Trap>(number)) {
    case Trap::rdtsc:
      return "rdtsc";
    case Trap::rdtscp:
      return "rdtscp";
    case Trap::cpuid:
      return "cpuid";
  }
  return "?";
}

}  // namespace

std::string event_text(const Event& event) {
  switch (event.kind) {
    case EventKind::syscall:
      return fmt::format("{} = {}", format_call(event.number, event.args), format_result(event.result));
    case EventKind::entry:
      return format_call(event.number, event.args) + " <unfinished ...>";
    case EventKind::exit:
      return fmt::format("<... {} resumed> = {}", syscall_name(event.number), format_result(event.result));
    case EventKind::signal:
      if (event.number == 0 && !event.fatal) return "--- another process or the kernel wrote into memory ---";
      return fmt::format("--- {}{} ---", signal_name(event.number), event.fatal ? ", fatal" : "");
    case EventKind::trap:
      return fmt::format("--- {} at {:#x} ---", trap_name(event.number), event.ip);
    case EventKind::preemption:
      if (Preempted{event.args[0]} < Preempted::stepped) return fmt::format("--- stopped at {:#x} ---", event.ip);
      return fmt::format("--- stopped at {:#x}, reached {} times ---", event.ip, event.args[1]);
  }
  return "?";
}

Ended what_ended(const Trace& trace, UnitId unit, IntervalIndex interval, EventIndex index, const Event& event) {
  if (!event.fatal) return Ended::nothing;
  const bool of_all = event.number == SYS_exit_group && event.result == 0;  // another result: it was forbidden
  if (event.kind == EventKind::signal || of_all) return Ended::process;
  const IntervalEnd* const end = trace.interval_end(unit, interval);
  const bool of_last = end && !end->state.empty() && end->end_event == index + 1;
  return of_last ? Ended::process : Ended::thread;
}

std::string event_notes(const Event& event, Ended ended) {
  std::string out;
  if (event.repeat > 1) {
    out += fmt::format("  x{}", event.repeat);
    if (event.cycle > 1) out += fmt::format(", in turn with the {} before", event.cycle - 1);
  }
  if (event.child_unit) out += fmt::format("  [unit {}]", event.child_unit);
  if (event.child_thread) out += fmt::format("  [thread {}]", event.child_thread);
  if (event.send && !event.child_unit)
    out += fmt::format("  -> channel {}, {} bytes", event.send->channel, event.send->length);
  if (event.receive) {
    const Receive& receive = *event.receive;
    out +=
        fmt::format("  <- channel {}, no. {}{}:", receive.channel, receive.arrival, receive.logged ? ", logged" : "");
    for (const auto& part : receive.parts) {
      out += fmt::format(" {}@{}[{}..{}]", part.sender.unit, part.sender.event, part.offset, part.offset + part.length);
    }
  }
  if (ended != Ended::nothing && event.kind != EventKind::signal) {
    out += fmt::format("  [the {} ended here]", ended == Ended::process ? "process" : "thread");
  }
  return out;
}

}  // namespace redrive
