#include "supervisor/replay/end_verification.h"

#include <fmt/format.h>

#include "supervisor/replay/divergence.h"
#include "supervisor/replay/place_search.h"
#include "supervisor/replay/undetermined_memory.h"
#include "supervisor/replay/verify.h"
#include "supervisor/tier/end_state.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

// Whether a thread was stopped where it was for this interval to begin with the event.
Result<bool> begins_by_preemption(const Trace& trace, EventRef first_event, IntervalIndex interval) {
  bool begins = false;
  if (first_event.event >= trace.event_count(first_event.unit)) return begins;
  TRY(trace.for_each_event(first_event.unit, first_event.event, first_event.event + 1,
                           [&](EventIndex, const Event& found) {
                             begins = interval_begun_by(trace, first_event, found) == interval;
                             return true;
                           }));
  return begins;
}

}  // namespace

Result<Step> EndVerification::before_last(const RedrivenThread& thread, EventIndex index,
                                          const user_regs_struct& regs) {
  const PlannedInterval& what = redriving_.what;
  const IntervalEnd* const end = redriving_.trace.interval_end(what.unit, what.interval);
  if (!end || end->state.empty() || index + 1 != what.requisite_event || end->end_event != what.requisite_event) {
    return Step::as_recorded();
  }
  const auto expected = decode_end_state(end->state);
  if (!expected) return Error{"the state at an interval's end cannot be understood", Status::damaged};
  redriving_.gates.remove(thread.process);
  const auto found = read_end_state(regs, get_xstate(thread.tid), redriving_.unit.memory(thread), expected->pages);
  const auto differ = [&](const std::string& of_what) {
    return diverged(thread, index, of_what + " that the program ended with", found ? "others" : "none");
  };
  if (!found || found->memory != expected->memory) return differ("the memory");
  if (found->registers != expected->registers) return differ("the registers");
  const bool comparable = found->extended_size == expected->extended_size;
  if (comparable && found->extended != expected->extended) return differ("the extended registers");
  equal_before_last_ = true;
  return Step::as_recorded();
}

Result<Verification> EndVerification::at_end() const {
  const Trace& trace = redriving_.trace;
  const PlannedInterval& what = redriving_.what;
  const EventIndex end_event = what.requisite_event;
  const auto& intervals = trace.intervals(what.unit);
  const IntervalIndex next = what.interval + 1;
  if (equal_before_last_) return Verification(Verified{});
  const bool whole = next < intervals.size() && intervals[next].first_event == end_event;
  if (!whole || intervals[next].kind != CheckpointKind::image) {
    const IntervalEnd* const end = trace.interval_end(what.unit, what.interval);
    return Verification(
        Unverified{!whole && (!end || end->end_event != end_event) ? "only the events before its end were executed"
                   : end && !end->state.empty() ? "the state at its program's end was noted before its last event"
                                                : "it ends with its program, and no state was noted there"});
  }
  if (!intervals[next].has_image) return Verification(Unverified{kNoImageAtEnd});
  ASSIGN_OR_RETURN(const Image image, trace.image(what.unit, next));
  UnitState expected;
  Decoder header(image.header);
  if (!decode(header, expected)) {
    return Error{fmt::format("the image of interval {} cannot be understood", next), Status::damaged};
  }
  ASSIGN_OR_RETURN(const bool preempted, begins_by_preemption(trace, {what.unit, end_event}, next));
  if (preempted && redriving_.unit.find(expected.trigger)) {
    ASSIGN_OR_RETURN(const SearchEnd search, run_to_place(redriving_, expected.trigger, end_event, next));
    if (const auto* difference = std::get_if<Difference>(&search)) return Verification(*difference);
    if (const auto* not_found = std::get_if<NotFound>(&search)) return Verification(Unverified{not_found->why});
  }
  ASSIGN_OR_RETURN(Verification threads, compare_threads(expected));
  if (!std::holds_alternative<Verified>(threads)) return threads;
  return compare_memory(image, expected);
}

Result<Verification> EndVerification::compare_threads(const UnitState& expected) const {
  const EventIndex end = redriving_.what.requisite_event;
  for (const auto& saved : expected.threads) {
    if (saved.thread >= expected.first_joined_thread) continue;
    RedrivenThread* const found = redriving_.unit.find(saved.thread);
    if (!found) {
      return Verification(Difference{end, std::nullopt, fmt::format("thread {}", saved.thread), "no such thread"});
    }
    RedrivenThread& thread = *found;
    // The thread whose next event begins the next interval has still to get there, unless it is there (a new thread, an
    // exit).
    user_regs_struct wanted = saved.regs;
    wanted.orig_rax = thread.regs.orig_rax;
    if (saved.thread == expected.trigger && !saved.in_syscall && !same_registers(wanted, thread.regs)) {
      const ThreadStop stop = redriving_.runner.run(thread);
      if (stop != ThreadStop::syscall) {
        return Verification(difference(thread, end, "a system call at " + hex(saved.regs.rip),
                                       redriving_.runner.came_to(thread, stop)));
      }
      thread.regs = before_syscall(thread.regs);
    }
    if (!same_registers(wanted, thread.regs)) {
      return Verification(difference(thread, end, "registers of the next checkpoint: " + describe_registers(saved.regs),
                                     describe_registers(thread.regs)));
    }
    // For a thread in a call, the recording may have read them at another moment.
    if (!saved.in_syscall && !saved.xstate.empty() && !same_xstate(saved.xstate, get_xstate(thread.tid))) {
      return Verification(difference(thread, end, "the extended registers of the next checkpoint", "others"));
    }
  }
  return Verification(Verified{});
}

Result<Verification> EndVerification::compare_memory(const Image& image, const UnitState& expected) const {
  const EventIndex end = redriving_.what.requisite_event;
  const Trace& trace = redriving_.trace;
  const auto& processes = redriving_.unit.processes();
  for (const auto& process : expected.processes) {
    if (process.process >= expected.first_joined_process) continue;
    const auto found = processes.find(process.process);
    if (found == processes.end()) {
      return Verification(Difference{end, std::nullopt, fmt::format("process {}", process.process), "no such process"});
    }
    if (process.memory_of) continue;
    redriving_.gates.remove(process.process);
    const Stub& stub = found->second.stub;
    ASSIGN_OR_RETURN(auto differs, memory_difference(trace, image, expected, process, stub, {}));
    if (differs) {
      ASSIGN_OR_RETURN(const auto undetermined, undetermined_memory(redriving_, expected, end));
      ASSIGN_OR_RETURN(differs, memory_difference(trace, image, expected, process, stub, undetermined));
    }
    if (differs) {
      return Verification(
          Difference{end, expected.trigger, "the memory of the next checkpoint", "other contents at " + hex(*differs)});
    }
  }
  return Verification(Verified{});
}

}  // namespace redrive
