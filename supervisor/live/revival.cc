#include "supervisor/live/revival.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "interceptors/trapped_instructions.h"
#include "supervisor/live/shared_objects.h"
#include "supervisor/live/unread.h"
#include "supervisor/plan/recovery_line.h"
#include "supervisor/replay/joint_replay.h"
#include "supervisor/replay/replay_set.h"

namespace redrive {
namespace {

// Where all units stand: also those that have been born and have done nothing.
Result<Breakpoint> breakpoint_of(const Communication& communication, const std::vector<EventRef>& events) {
  ASSIGN_OR_RETURN(Breakpoint breakpoint, causal_breakpoint(communication, events));
  for (auto& [unit, place] : breakpoint.units) {
    const auto& birth = communication.units.at(unit).birth;
    place.started |= !birth || birth->event < breakpoint.units.at(birth->unit).event;
  }
  return breakpoint;
}

// Finds out where the receiver stands, and lets the breakpoint have it there and hold the message.
Result<Delivery> add_first(const Trace& trace, const Past& later, const FirstWanted& wanted,
                           Communication& communication, std::vector<EventRef>& events) {
  ASSIGN_OR_RETURN(const Delivery delivery, find_delivery(trace, communication, later, wanted));
  for (const EventRef& at : events) {
    if (at.unit != wanted.at.unit || at == wanted.at || at == delivery.before) continue;
    return Error{fmt::format("unit {} is to stand before event {}, but receives the message of unit {} in event {}",
                             at.unit, at.event, wanted.sender, wanted.at.event)};
  }
  std::erase_if(events, [&](const EventRef& at) { return at.unit == wanted.at.unit; });
  events.push_back(delivery.before);
  TRY(add_delivery(delivery, communication));
  return delivery;
}

Places places_of(const Breakpoint& breakpoint) {
  Places places;
  for (const auto& [unit, place] : breakpoint.units) {
    if (place.started) places[unit] = place.event;
  }
  return places;
}

Places ends_of(const Trace& trace) {
  Places places;
  for (const auto& unit : trace.units()) places[unit.unit] = trace.event_count(unit.unit);
  return places;
}

Error failure(const JointReplay& replay, const Trace& trace, const Plan& plan) {
  std::optional<Error> error;
  for (size_t i = 0; i < plan.replay_set.size(); ++i) {
    const auto& outcome = replay.outcome(i);
    if (outcome && *outcome && (*outcome)->divergence) {
      print_divergence(trace, *(*outcome)->divergence, "--verify");
      return Error{"the units cannot be brought to the breakpoint", Status::divergence};
    }
    if (outcome && !*outcome && !error) error = outcome->error();
  }
  return error.value_or(Error{"no unit stands there"});
}

}  // namespace

Result<Revival> Revival::make(const Trace& trace, const RevivalOptions& options) {
  ASSIGN_OR_RETURN(DependenceGraph graph, DependenceGraph::open(trace));
  ASSIGN_OR_RETURN(Communication communication, read_communication(trace));
  TRY(add_waits(trace, communication));
  TRY(add_capacities(trace, communication));
  ASSIGN_OR_RETURN(const Past later, read_past(trace, ends_of(trace)));
  TRY(add_connections(trace, later, communication));
  add_packets(later, communication);
  const SignalCauses causes = causes_of_signals(later.model.signals());
  add_signals(causes, communication);
  std::vector<EventRef> events = options.events;
  std::optional<Delivery> first;
  if (options.first) {
    ASSIGN_OR_RETURN(first, add_first(trace, later, *options.first, communication, events));
  }
  ASSIGN_OR_RETURN(const Breakpoint breakpoint, breakpoint_of(communication, events));
  if (first && breakpoint.units.at(first->message.unit).event <= first->message.event) {
    return Error{fmt::format("unit {} sends its message in event {}, which does not happen before the other places",
                             first->message.unit, first->message.event)};
  }
  const Places places = places_of(breakpoint);
  ASSIGN_OR_RETURN(const Past past, read_past(trace, places, causes));
  SpecMaker maker(trace, past, later, places, options.files, first ? &*first : nullptr, options.only);
  TRY(maker.check());
  WantedInputs inputs;
  TRY(maker.want_inputs(inputs));
  ASSIGN_OR_RETURN(const RecoveryLine line, options.only ? line_to(graph, {*options.only, places.at(*options.only)})
                                                         : recovery_line(communication, graph, breakpoint));
  trap_own_instructions();
  const std::vector<int> processors = usable_processors(options.jobs);
  const auto tier = options.in_process ? make_tier() : nullptr;
  const SetRun run{trace, graph, processors, tier.get()};
  TRY(inputs.find(run));
  maker.files().want_names(inputs);
  TRY(inputs.find(run));
  maker.files().want_content(inputs);
  TRY(inputs.find(run));
  ASSIGN_OR_RETURN(const auto replay, JointReplay::make(run, line.plan, line.standing.size(), false));
  ASSIGN_OR_RETURN(const auto came, replay->go_to(line.plan));
  if (came == JointReplay::Came::all_ended) return failure(*replay, trace, line.plan);
  std::map<UnitId, UnitState> states;
  std::map<KernelModel::ProcessName, const Memory*> memories;
  for (size_t i = 0; i < line.standing.size(); ++i) {
    Result<UnitState> state = Error{"no unit stands there"};
    replay->look(i, [&](const StoppedUnit& unit) {
      state = unit.state();
      for (const auto& [process, memory] : unit.memories) memories[{unit.unit, process}] = memory;
    });
    if (!state) return state.error();
    states[line.standing[i].unit] = std::move(*state);
  }
  Revival made;
  made.stopped_ = options.stopped;
  made.first_ = first;
  ASSIGN_OR_RETURN(made.spec_, maker.make_spec(inputs, states));
  if (options.images) {
    TRY(options.images->adopt(made.spec_));
    made.images_ = options.images->path();
    ASSIGN_OR_RETURN(made.hold_, Hold::make());
  }
  TRY(made.transplant(trace, states, memories, options.images));
  for (const auto& [number, transplant] : made.transplants_) {
    const LiveProcess& process = made.spec_.processes[number];
    made.processes_.push_back({process.unit, places.at(process.unit), process.pid, made.keeper_->pid(number)});
  }
  TRY(used_copies_are_good(trace));
  if (!options.images) TRY(made.cut_files());
  return made;
}

// Last, so that files stay as they are if something cannot be made.
Result<void> Revival::cut_files() {
  for (const LiveObject& object : spec_.objects) {
    if (!object.needed || !object.cut_to) continue;
    if (truncate(object.path.c_str(), static_cast<off_t>(*object.cut_to)) != 0) {
      return errno_error("cannot cut " + object.path);
    }
    spec_.notes.push_back(fmt::format("{} is cut to the {} bytes that it had there", object.path, *object.cut_to));
  }
  return {};
}

Result<void> Revival::transplant(const Trace& trace, const std::map<UnitId, UnitState>& states,
                                 const std::map<KernelModel::ProcessName, const Memory*>& memories,
                                 ImageDirectory* images) {
  LiveShared shared;
  MappedPaths paths(trace, images);
  const auto state_of = [&](const LiveProcess& process) -> const ProcessState& {
    const auto& all = states.at(process.unit).processes;
    return *std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.process == process.serial; });
  };
  for (const LiveProcess& process : spec_.processes) {
    if (process.wait_status) continue;
    TRY(shared.add(process.unit, state_of(process), *memories.at({process.unit, process.serial})));
  }
  if (!shared.descriptors().empty()) {
    spec_.notes.push_back(
        "shared memory is the processes' own: what they write is not in the files that they had mapped, and "
        "shmdt(2) does not know it");
  }
  std::optional<DumpedKeep> dumped;
  if (images) dumped = DumpedKeep{hold_->path(), images->init()};
  ASSIGN_OR_RETURN(keeper_, Keeper::start(spec_, shared.descriptors(), dumped));
  for (size_t i = 0; i < spec_.processes.size(); ++i) {
    const LiveProcess& process = spec_.processes[i];
    if (process.wait_status) continue;
    ASSIGN_OR_RETURN(Transplant one, Transplant::begin(keeper_->pid(i)));
    TRY(one.give_memory(state_of(process), *memories.at({process.unit, process.serial}), paths, shared, *keeper_,
                        process.unit));
    TRY(one.give_threads(process));
    TRY(one.finish(process));
    transplants_.emplace_back(i, std::move(one));
  }
  for (const std::string& path : paths.changed()) {
    spec_.notes.push_back(path + " is not what was recorded: the trace's copy is mapped");
  }
  return {};
}

namespace {

// Waits until what has arrived is read, and returns true; or until the process has ended. Who reads a part of a
// message, and nothing more for a while, waits for something else.
bool await_receipt(const Unread& unread, pid_t receiver) {
  constexpr int kPause_ms = 1, kWhile = 1000;
  const Fd process(static_cast<int>(syscall(SYS_pidfd_open, receiver, 0)));
  const uint64_t all = unread.bytes();
  uint64_t left = all;
  for (int still = 0; left > 0 && (left == all || still < kWhile); ++still) {
    pollfd end{process.get(), POLLIN, 0};
    if (!process || poll(&end, 1, kPause_ms) == 1) return unread.bytes() == 0;
    const uint64_t now = unread.bytes();
    if (now != left) still = 0;
    left = now;
  }
  return true;
}

}  // namespace

Result<bool> Revival::deliver_first() {
  if (!first_) return true;
  // Whose descriptor tells whether it was received.
  const auto index_of = [&](UnitId unit, ObjectNumber object) -> std::optional<std::pair<size_t, int>> {
    for (const auto& [number, transplant] : transplants_) {
      const LiveProcess& process = spec_.processes[number];
      for (const auto& [fd, descriptor] : process.descriptors) {
        if (process.unit == unit && descriptor.object == object) return std::pair(number, fd);
      }
    }
    return std::nullopt;
  };
  const auto receiver = index_of(first_->before.unit, *spec_.first);
  const auto sender = index_of(first_->message.unit, *spec_.first);
  const auto& known = receiver ? receiver : sender;
  if (!known) return Error{"nobody has the connection through which the message comes"};
  ASSIGN_OR_RETURN(const Unread unread, Unread::of(keeper_->pid(known->first), known->second,
                                                   receiver ? Unread::End::receiver : Unread::End::sender));
  TRY(let_go(first_->before.unit));
  const auto its = std::find_if(processes_.begin(), processes_.end(),
                                [&](const Revived& each) { return each.unit == first_->before.unit; });
  const bool received = await_receipt(unread, its->host_pid);
  const bool withheld = std::any_of(spec_.objects.begin(), spec_.objects.end(), holds_back);
  if (withheld) TRY(keeper_->put_withheld());
  return received;
}

Result<void> Revival::let_go(std::optional<UnitId> only) {
  for (auto each = transplants_.begin(); each != transplants_.end();) {
    if (only && spec_.processes[each->first].unit != *only) {
      ++each;
      continue;
    }
    TRY(each->second.let_go(stopped_));
    each = transplants_.erase(each);
  }
  return {};
}

Result<void> Revival::let_go() { return let_go(std::nullopt); }

Result<void> Revival::dump(const Criu& criu) {
  ASSIGN_OR_RETURN(const pid_t init, keeper_->await_init());
  TRY(hold_->freeze());
  TRY(let_go());
  TRY(hold_->await());
  return criu.dump(init, images_, hold_->path());
}

}  // namespace redrive
