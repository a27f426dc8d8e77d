#include "supervisor/replay/replay_set.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <numeric>

#include "base/notice.h"
#include "base/text.h"
#include "interceptors/trapped_instructions.h"

namespace redrive {

std::optional<EventRef> birth_of(const Rdg& graph, const PlannedInterval& planned) {
  return graph.units.at(planned.unit).at(planned.start).birth;
}

std::vector<int> usable_processors(int count) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  std::vector<int> usable;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) usable.push_back(cpu);
  }
  const auto here = std::find(usable.begin(), usable.end(), sched_getcpu());
  if (here != usable.end()) std::rotate(usable.begin(), here, usable.end());
  std::vector<int> processors;
  for (int i = 0; i < count; ++i) processors.push_back(usable[static_cast<size_t>(i) % usable.size()]);
  return processors;
}

std::vector<int> spread(const std::vector<PlannedInterval>& set, const std::vector<int>& processors) {
  std::vector<size_t> order(set.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return set[a].cpu_ns > set[b].cpu_ns; });
  std::vector<uint64_t> load(processors.size());
  std::vector<int> chosen(set.size());
  for (const size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += set[i].cpu_ns + 1;
    chosen[i] = processors[static_cast<size_t>(least - load.begin())];
  }
  return chosen;
}

Result<std::unique_ptr<MessageStore>> store_for(const DependenceGraph& graph, const Plan& plan,
                                                PayloadTable::Keep keep) {
  std::vector<ExecutedEvents> intervals;
  std::vector<NeededSend> sends;
  std::set<EventRef> births;
  for (const auto& planned : plan.replay_set) {
    const auto receiver = static_cast<uint32_t>(intervals.size());
    for (const auto& needed : graph.needed(planned)) sends.push_back({needed.sender, needed.length, receiver});
    const Rdg::Interval& start = graph.rdg().units.at(planned.unit).at(planned.start);
    intervals.push_back({planned.unit, start.first_event, planned.requisite_event});
    if (start.birth) births.insert(*start.birth);
  }
  return MessageStore::make(intervals, std::move(sends), std::move(births), keep);
}

Result<std::vector<uint64_t>> arrivals_of(const Trace& trace, UnitId unit, EventIndex first, EventIndex end) {
  std::vector<uint64_t> arrivals;
  TRY(trace.for_each_event(unit, first, end, [&](EventIndex, const Event& event) {
    if (event.receive) arrivals.push_back(event.receive->arrival);
    return true;
  }));
  return arrivals;
}

std::unique_ptr<ReplayTier> make_tier() {
  auto arena = GateArena::make();
  if (arena) return std::make_unique<ReplayTier>(std::move(*arena));
  notice("{}; every system call will stop", arena.error().message);
  return nullptr;
}

void print_divergence(const Trace& trace, const Divergence& d, const std::string& reproduce) {
  std::string text = fmt::format("redrive: divergence in unit {} ({}), interval {}, event {}\n", d.unit,
                                 printable(trace.unit_name(d.unit)), d.interval, d.event);
  text += fmt::format("  expected: {}\n  found:    {}\n", printable(d.expected), printable(d.found));
  if (!d.stack.empty()) text += fmt::format("  stack:\n{}", printable_lines(d.stack));
  if (!d.disassembly.empty()) text += fmt::format("  code:\n{}", printable_lines(d.disassembly));
  text += fmt::format("  reproduce: redrive replay {} {}\n", printable(shell_quoted(trace.directory())), reproduce);
  write_error(text);
}

ReplaySession::Execute replayers(const SetRun& run, MessageStore& store) {
  return [&trace = run.trace, tier = run.tier, engine = run.engine, &store](
             const ReplaySession::Piece& piece, const PlannedInterval& what, Seat& seat, Halt& halt) {
    ReplayerOptions how = piece.how;
    how.halt = &halt;
    how.engine = engine;
    auto outcome = Replayer(trace, what, piece.birth, store, seat, tier, how).run();
    // Whatever else was found may come from a damaged copy.
    if (const auto good = used_copies_are_good(trace); !good) return ReplaySession::Outcome(good.error());
    return outcome;
  };
}

Result<SetOutcome> run_set(const SetRun& run, const Plan& plan, const std::function<ReplayerOptions(size_t)>& options,
                           Start start) {
  const auto& members = plan.replay_set;
  const std::vector<int> processors = spread(members, run.processors);
  ASSIGN_OR_RETURN(auto made, store_for(run.graph, plan, run.keep));
  MessageStore& store = *made;
  if (run.total_order) {
    std::vector<uint64_t> arrivals;
    for (const auto& member : members) {
      const EventIndex first = run.trace.intervals(member.unit).at(member.start).first_event;
      ASSIGN_OR_RETURN(const auto its, arrivals_of(run.trace, member.unit, first, member.requisite_event));
      arrivals.insert(arrivals.end(), its.begin(), its.end());
    }
    store.keep_order_of(std::move(arrivals));
  }
  std::vector<ReplaySession::Piece> pieces;
  std::vector<ReplaySession::Goal> ends;
  for (size_t i = 0; i < members.size(); ++i) {
    ReplaySession::Piece& piece = pieces.emplace_back();
    piece.what = members[i];
    piece.birth = birth_of(run.graph.rdg(), members[i]);
    piece.how = options(i);
    if (start == Start::at_once) piece.processor = processors[i];
    ends.push_back({i, std::nullopt});
  }
  std::rotate(ends.begin(), ends.begin() + 1, ends.end());  // what was asked for starts last
  std::vector<std::optional<ReplaySession::Outcome>> outcomes(members.size());
  ReplaySession session(std::move(pieces), std::move(made), run.processors, replayers(run, store),
                        {{}, {}, [&](size_t i, const auto& outcome) { outcomes[i] = outcome; }});
  if (start == Start::at_once) {
    session.go(ends);
  } else {
    // About as they were recorded.
    std::vector<size_t> order(members.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return members[a].start < members[b].start; });
    session.run_all(order);
  }
  SetOutcome all;
  for (auto& outcome : outcomes) all.members.push_back(std::move(*outcome));
  all.arrivals = store.turns_taken();
  return all;
}

Result<Replayer::Outcome> redrive(const SetRun& run, UnitId unit, IntervalIndex interval, const ReplayerOptions& how) {
  ASSIGN_OR_RETURN(const PlanResult planned, run.graph.plan(unit, interval));
  if (!planned.plan) return Error{describe(*planned.error)};
  // The others are only to send what it needs.
  ReplayerOptions others;
  others.started = how.started;
  ASSIGN_OR_RETURN(auto outcomes, run_set(run, *planned.plan, [&](size_t i) { return i == 0 ? how : others; }));
  // Intervals that waited for a diverged one failed because of it.
  for (auto& outcome : outcomes.members) {
    if (outcome && outcome->divergence) return std::move(*outcome);
  }
  for (const auto& outcome : outcomes.members) {
    if (!outcome) return outcome.error();
  }
  return std::move(*outcomes.members.front());
}

Result<std::vector<double>> replay_times_s(const Trace& trace, int jobs) {
  ASSIGN_OR_RETURN(DependenceGraph graph, DependenceGraph::open(trace));
  trap_own_instructions();
  const std::vector<int> processors = usable_processors(jobs);
  const auto tier = make_tier();
  const SetRun run{trace, graph, processors, tier.get()};
  std::vector<double> times_s;
  for (const auto& unit : trace.units()) {
    for (const auto& interval : trace.intervals(unit.unit)) {
      const ReplayerOptions from_now_on;
      ASSIGN_OR_RETURN(const auto outcome, redrive(run, unit.unit, interval.interval, from_now_on));
      if (outcome.divergence) {
        return Error{fmt::format("interval {} of unit {} diverges: see redrive replay", interval.interval, unit.unit),
                     Status::divergence};
      }
      times_s.push_back(outcome.seconds);
    }
  }
  return times_s;
}

}  // namespace redrive
