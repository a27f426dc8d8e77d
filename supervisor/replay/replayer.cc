#include "supervisor/replay/replayer.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

#include "base/text.h"
#include "base/units.h"
#include "checkpoint/address_space.h"
#include "supervisor/replay/birth_replay.h"
#include "supervisor/replay/divergence.h"
#include "supervisor/replay/image_capture.h"
#include "supervisor/tier/missing_memory.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

constexpr double kMostRecordedNs = 1e15;  // twelve days: a trace can say anything

// The CPU time that was recorded for all that is executed. If the recorder was killed before it noted that of an
// interval, it is the time that an interval is to take.
uint64_t recorded_ns(const Trace& trace, const PlannedInterval& what) {
  double ns = 0;
  for (IntervalIndex i = what.start; i <= what.interval; ++i) {
    const IntervalEnd* const end = trace.interval_end(what.unit, i);
    ns += end ? static_cast<double>(end->cpu_ns) : trace.settings().checkpoint_period_s * 1e9;
  }
  return ns > 0 ? static_cast<uint64_t>(std::min(ns, kMostRecordedNs)) : 0;
}

uint64_t hard_stack_limit() {
  rlimit stack{};
  return getrlimit(RLIMIT_STACK, &stack) == 0 ? stack.rlim_max : RLIM_INFINITY;
}

// Whether a thread has accessed memory to which its stack would have had to grow, to more than so many bytes.
bool is_below_stack(pid_t pid, pid_t tid, uint64_t most) {
  siginfo_t info{};
  if (!get_siginfo(tid, info)) return false;
  if (info.si_signo != SIGSEGV || info.si_code != SEGV_MAPERR) return false;
  const auto address = reinterpret_cast<Address>(info.si_addr);
  const auto above = mapped_from(pid, address);
  if (!above || !*above || (*above)->start <= address || (*above)->end - page_down(address) <= most) return false;
  const auto mappings = flagged_mappings(pid);
  return mappings && std::ranges::any_of(*mappings, [&](const FlaggedMapping& each) {
           return each.mapping.start == (*above)->start && each.is("gd");
         });
}

// Sets the registers so that the kernel makes no call when the thread continues.
bool set_regs_alone(pid_t tid, user_regs_struct regs) {
  regs.orig_rax = ~0ull;
  return set_regs(tid, regs);
}

}  // namespace

Replayer::Replayer(const Trace& trace, const PlannedInterval& what, std::optional<EventRef> birth, MessageStore& store,
                   Seat& seat, ReplayTier* tier, ReplayerOptions options)
    : birth_(birth),
      store_(store),
      seat_(seat),
      options_(options),
      unit_(seat),
      gates_(unit_, tier, store),
      runner_(unit_, gates_, recorded_ns(trace, what)),
      redriving_{trace, what, unit_, gates_, runner_, [&trace](uint64_t file) { return trace.file_path(file); }},
      messages_(what.unit, store),
      patcher_(redriving_, tier),
      effects_(redriving_, messages_),
      verification_(options.verify ? std::optional<EndVerification>(redriving_) : std::nullopt),
      calls_(redriving_, store, messages_, effects_, patcher_, verification_ ? &*verification_ : nullptr,
             options.output, options.watch),
      events_(redriving_, patcher_, calls_, effects_, verification_ ? &*verification_ : nullptr),
      batch_(redriving_, patcher_, messages_, options.output, options.watch) {
  if (!options_.preparation) return;
  due_.emplace(trace.intervals(what.unit), what.start, [this](IntervalIndex interval) {
    return options_.preparation->wants_image(redriving_.what.unit, interval);
  });
}

Result<Replayer::Outcome> Replayer::run() {
  try {
    Result<Outcome> outcome = run_to_end();
    const bool complete = outcome && !outcome->divergence && outcome->unverified.empty();
    if (!complete && runner_.was_killed()) {
      return Error{fmt::format(
          "a process of unit {} was killed, as by the kernel if memory is short or the limit of CPU time is "
          "reached (see dmesg(1), ulimit -t)",
          redriving_.what.unit)};
    }
    return outcome;
  } catch (const std::exception& failure) {  // no memory: the threads of other intervals continue
    return Error{describe(failure)};
  }
}

Result<Replayer::Outcome> Replayer::run_to_end() {
  TRY(begin());
  const PlannedInterval& what = redriving_.what;
  Outcome outcome;
  for (EventIndex at = redriving_.trace.intervals(what.unit).at(what.start).first_event;;) {
    const auto halt = options_.halt ? options_.halt->next() : std::nullopt;
    const EventIndex next = halt.value_or(what.requisite_event);
    ASSIGN_OR_RETURN(const Step step, execute(std::exchange(at, next), next));
    if (step.has_diverged()) {
      ASSIGN_OR_RETURN(outcome.divergence, report(step.difference()));
      break;
    }
    if (!halt) break;
    ASSIGN_OR_RETURN(const Stood stood, stand(at));
    if (const auto* difference = std::get_if<Difference>(&stood)) {
      ASSIGN_OR_RETURN(outcome.divergence, report(*difference));
    }
    if (outcome.divergence || std::get<Halt::Then>(stood) == Halt::Then::end) return outcome;
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - options_.started).count();
  if (outcome.divergence || !verification_) return outcome;
  ASSIGN_OR_RETURN(const Verification verification, verification_->at_end());
  if (const auto* difference = std::get_if<Difference>(&verification)) {
    ASSIGN_OR_RETURN(outcome.divergence, report(*difference));
  }
  if (const auto* unverified = std::get_if<Unverified>(&verification)) outcome.unverified = unverified->why;
  outcome.verified = std::holds_alternative<Verified>(verification);
  return outcome;
}

// ---- The start

Result<void> Replayer::begin() {
  const PlannedInterval& what = redriving_.what;
  const IntervalRecord& interval = redriving_.trace.intervals(what.unit).at(what.start);
  if (interval.has_image) return restore_start();
  if (birth_) return adopt(redriving_, store_, *birth_, interval.pid);
  return Error{fmt::format("the checkpoint of interval {} of unit {} was not stored", what.start, what.unit)};
}

Result<void> Replayer::restore_start() {
  const PlannedInterval& what = redriving_.what;
  const Trace& trace = redriving_.trace;
  ASSIGN_OR_RETURN(const Image image, trace.image(what.unit, what.start));
  ASSIGN_OR_RETURN(const UnitState state, read_state(image.header, what.unit, what.start));
  const auto read_pages = [&](const FillPages& fill) { return trace.read_pages(image.pages, fill); };
  std::vector<PageRef> stored;
  if (options_.engine) {
    for (const Image::Page& page : image.pages) stored.push_back({page.process, page.address});
  }
  ASSIGN_OR_RETURN(RestoredUnit restored,
                   restore(state, read_pages, redriving_.file_path, gates_.stub_tier(), options_.engine, stored));
  unit_.take(std::move(restored), state);
  return gates_.map_all();
}

// ---- The events

// Events [first, last), of which `first` is the next.
Result<Step> Replayer::execute(EventIndex first, EventIndex last) {
  const UnitId unit = redriving_.what.unit;
  const uint64_t before = executed_;
  Result<Step> step = Step::as_recorded();
  TRY(redriving_.trace.for_each_event(unit, first, last, [&](EventIndex index, const Event& event) {
    const auto goes_on = [&] { return step && !step->has_diverged(); };
    if (options_.preparation) step = prepare_before(index, event);
    if (goes_on()) step = visit(index, event);
    previous_ = &event;
    return goes_on();
  }));
  previous_ = nullptr;
  TRY_STEP(std::move(step));
  TRY_STEP(run_batch(false));
  TRY(take_payloads());
  const EventIndex next = first + (executed_ - before);
  if (next == last) return Step::as_recorded();
  return Error{fmt::format("unit {} has no event {} in this trace", unit, next), Status::damaged};
}

// Takes what the preparation wants from where the unit is, and notes what it wants of the event.
Result<Step> Replayer::prepare_before(EventIndex index, const Event& event) {
  TRY(take_payloads());
  Preparation& preparation = *options_.preparation;
  while (const auto due = due_->next(index, event.kind)) {
    if (due->at_birth) {
      TRY(capture_image(redriving_, due->interval, std::nullopt, preparation));
      continue;
    }
    TRY_STEP(run_batch(event.thread == batch_.thread()));
    RedrivenThread* const trigger = unit_.find(event.thread);
    if (!trigger) return no_thread(index, event);
    if (runner_.run_ahead(*trigger) != ThreadStop::syscall) continue;  // as the event will find
    TRY(capture_image(redriving_, due->interval, event.thread, preparation));
  }
  if (event.receive && !event.receive->logged && preparation.wants_payload({redriving_.what.unit, index})) {
    wanted_payloads_.add(index, event.receive->parts);
  }
  return Step::as_recorded();
}

Result<void> Replayer::take_payloads() {
  const PlannedInterval& what = redriving_.what;
  const EventIndex done = redriving_.trace.intervals(what.unit).at(what.start).first_event + executed_;
  return wanted_payloads_.take(
      done, [&](const MessagePart& part) { return store_.payload(part); },
      [&](EventIndex receiver, const Bytes& payload) {
        return options_.preparation->add_payload({what.unit, receiver}, payload);
      });
}

// Takes the next event: executes it, or has it executed together with those that follow.
Result<Step> Replayer::visit(EventIndex index, const Event& event) {
  if (event.receive && store_.keeps_order()) return receive_in_turn(index, event);
  ASSIGN_OR_RETURN(Answer answer, batch_.add(index, event));
  if (answer == Answer::in_ring) return Step::as_recorded();
  if (batch_.empty()) return step(index, event);
  // What follows may happen right after the last of them, or while its thread stands there; before the thread runs on
  // to where memory was missing, that has to be taken away.
  const bool own =
      event.thread == batch_.thread() && event.kind != EventKind::signal && event.kind != EventKind::preemption;
  const bool behind = event.kind == EventKind::signal && event.thread == batch_.thread() &&
                      (event.args[0] == static_cast<uint64_t>(SignalPoint::before_syscall) ||
                       event.args[0] == static_cast<uint64_t>(SignalPoint::fault)) &&
                      !MissingMemory::of(event);
  TRY_STEP(run_batch(own || behind));
  ASSIGN_OR_RETURN(answer, batch_.add(index, event));
  return answer == Answer::in_ring ? Step::as_recorded() : step(index, event);
}

// The total order: a receive happens at a stop, when all that came before it have happened. What was sent before it has
// been sent by then.
Result<Step> Replayer::receive_in_turn(EventIndex index, const Event& event) {
  TRY_STEP(run_batch(event.thread == batch_.thread()));
  TRY(store_.await_turn(event.receive->arrival));
  auto received = step(index, event);
  if (received) store_.turn_taken(event.receive->arrival);
  return received;
}

// Executes an event at a stop. `made`: how many of the calls that it stands for were made already.
Result<Step> Replayer::step(EventIndex index, const Event& event, uint64_t made) {
  ++executed_;
  store_.got_on();
  return events_.replay(index, event, made);
}

// Executes the events in the ring. The thread continues to its next stop; unless `onward`, it stands right after the
// last event instead.
Result<Step> Replayer::run_batch(bool onward) {
  if (batch_.empty()) return Step::as_recorded();
  const RingBatch::Events batch = batch_.take();
  const size_t count = batch.ends.size();
  store_.got_on();
  RedrivenThread& thread = unit_.thread(batch.thread);
  gate::Slot& slot = *gates_.of(thread)->slot();
  // The thread can stand right after the last event's last call only if that call stops.
  const uint64_t last_start = count > 1 ? batch.ends[count - 2] : 0;
  uint64_t& last_repeat = reinterpret_cast<gate::Expected*>(ring(slot) + last_start)->repeat;
  const bool last_stops = !onward && last_repeat > 1;
  if (last_stops) --last_repeat;
  const size_t answered = count - (onward || last_stops ? 0 : 1);
  slot.taken = slot.repeated = 0;
  slot.processor = static_cast<uint32_t>(seat_.processor());
  slot.head = answered ? batch.ends[answered - 1] : 0;
  if (answered) gates_.enter(thread);
  const auto make = [&](EventIndex index, const auto& made) {
    Result<Step> step_made = Step::as_recorded();
    const auto make_one = [&](EventIndex, const Event& event) {
      step_made = step(index, event, made(event));
      return true;
    };
    const bool is_previous = previous_ && index == batch.first + count - 1;
    if (is_previous) return make_one(index, *previous_), std::move(step_made);
    const auto read = redriving_.trace.for_each_event(redriving_.what.unit, index, index + 1, make_one);
    return read ? std::move(step_made) : Result<Step>(read.error());
  };
  for (size_t done = 0; done < count;) {
    if (done < answered) {
      runner_.run_ahead(thread);
      const auto taken = std::upper_bound(batch.ends.begin(), batch.ends.end(), slot.taken);
      const size_t now = std::max(done, static_cast<size_t>(taken - batch.ends.begin()));
      executed_ += now - done;
      done = now;
      for (const auto& [events, brk] : batch.breaks) {
        if (events <= done) unit_.process(thread.process).brk = brk;
      }
      if (done == count) break;
    }
    const EventIndex index = batch.first + done;
    const uint64_t repeated = std::exchange(slot.repeated, 0);
    // The ring answers nothing meanwhile: the rest of a series could look like the event that follows.
    slot.taken = batch.ends[done++];
    const uint64_t head = std::exchange(slot.head, slot.taken);
    TRY_STEP(make(index, [&](const Event&) { return repeated; }));
    slot.head = head;
    if (last_stops && done == count) {
      slot.head = slot.taken = 0;
      return Step::as_recorded();
    }
  }
  slot.head = slot.taken = 0;
  if (last_stops) {
    --executed_;
    return make(batch.first + count - 1, [](const Event& last) { return last.repeat - 1; });
  }
  return Step::as_recorded();
}

// ---- On its way

// Stands before an event until it is told what to do then.
Result<Replayer::Stood> Replayer::stand(EventIndex index) {
  const UnitId unit = redriving_.what.unit;
  StoppedUnit stopped{unit, index, std::nullopt, {}, {}};
  if (!options_.halt->shown()) return Stood(options_.halt->stand(stopped));
  Result<Step> arrived = Step::as_recorded();
  TRY(redriving_.trace.for_each_event(unit, index, index + 1, [&](EventIndex, const Event& event) {
    stopped.thread = event.thread;
    arrived = events_.arrive(index, event);
    if (event.kind == EventKind::signal) stopped.fault = fault_of(event.thread);
    return true;
  }));
  if (!arrived) return arrived.error();
  if (arrived->has_diverged()) return Stood(arrived->difference());
  const auto without_gate = gates_.remove_all();
  for (const auto& [serial, thread] : unit_.threads()) {
    const bool before_call = thread.ahead == ThreadStop::syscall;
    const user_regs_struct regs = before_call ? before_syscall(thread.regs) : thread.regs;
    if (!set_regs_alone(thread.tid, regs)) return errno_error("cannot set registers");
    stopped.threads[serial] = {thread.process, thread.tid, regs, thread.stopped_at_syscall && !before_call};
  }
  for (const auto& [serial, process] : unit_.processes()) stopped.memories[serial] = &process.stub.memory();
  stopped.state = [&] { return state_of(stopped); };
  const Halt::Then then = options_.halt->stand(stopped);
  if (then == Halt::Then::end) return Stood(then);
  for (const auto& [serial, thread] : unit_.threads()) {
    if (!set_regs_alone(thread.tid, thread.regs)) return errno_error("cannot set registers");
  }
  for (const auto& sharing : without_gate) TRY(gates_.map(sharing, unit_.stub(sharing.front()).pid()));
  return Stood(then);
}

// What a thread has run into that stands at an instruction which has caused a signal. It must not have continued since.
std::optional<siginfo_t> Replayer::fault_of(ThreadSerial serial) const {
  const auto thread = unit_.threads().find(serial);
  if (thread == unit_.threads().end() || thread->second.ahead != ThreadStop::fault) return std::nullopt;
  siginfo_t info{};
  if (!get_siginfo(thread->second.tid, info)) return std::nullopt;
  const Address ip = thread->second.regs.rip;
  const Gate* const gate = gates_.of(thread->second);
  if (gate && info.si_addr == reinterpret_cast<void*>(gate->physical(ip))) info.si_addr = reinterpret_cast<void*>(ip);
  return info;
}

Result<UnitState> Replayer::state_of(const StoppedUnit& stopped) const {
  UnitState state;
  state.trigger = stopped.thread.value_or(0);
  state.next_thread = unit_.next_thread();
  state.next_process = unit_.next_process();
  ASSIGN_OR_RETURN(state.processes, capture_processes(redriving_));
  for (const auto& [serial, thread] : stopped.threads) {
    state.threads.push_back(
        {serial, thread.process, thread.in_call, read_implies_exec(thread.tid), thread.regs, get_xstate(thread.tid)});
  }
  return state;
}

// What differs from the recording. An Error if a stack cannot grow here as it did then.
Result<Divergence> Replayer::report(const Difference& difference) {
  const PlannedInterval& what = redriving_.what;
  Divergence d{what.unit, what.interval, difference.event, difference.expected, difference.found, {}, {}};
  const RedrivenThread* const thread = difference.thread ? unit_.find(*difference.thread) : nullptr;
  if (!thread || !unit_.has(thread->process)) return d;
  const uint64_t most = hard_stack_limit();
  if (is_below_stack(unit_.stub(thread->process).pid(), thread->tid, most)) {
    return Error{
        fmt::format("a stack of unit {} cannot grow beyond {}, the hard limit, as it did when it was recorded "
                    "(ulimit -Hs)",
                    what.unit, format_size(most))};
  }
  gates_.remove(thread->process);  // the code is to be shown as it is in the program
  d.stack = stack_of(thread->tid, redriving_.trace.files());
  d.disassembly = disassembly_at(unit_.memory(*thread), thread->regs.rip);
  return d;
}

}  // namespace redrive
