#include "supervisor/replay_set.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <numeric>

namespace redrive {
namespace {

EventIndex first_event(const Rdg& graph, const PlannedInterval& planned) {
  return graph.units.at(planned.unit).at(planned.start).first_event;
}

bool executes(const Rdg& graph, const PlannedInterval& planned, EventRef event) {
  return planned.unit == event.unit && first_event(graph, planned) <= event.event &&
         event.event < planned.requisite_event;
}

}  // namespace

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

std::set<EventRef> births_of(const Rdg& graph, const Plan& plan) {
  std::set<EventRef> births;
  for (const auto& planned : plan.replay_set) {
    if (const auto birth = birth_of(graph, planned)) births.insert(*birth);
  }
  return births;
}

std::vector<NeededSend> sends_of(const DependenceGraph& graph, const Plan& plan, const std::vector<int>& processors) {
  std::vector<NeededSend> all;
  for (const auto& planned : plan.replay_set) {
    for (const auto& needed : graph.needed(planned)) all.push_back({needed.sender, needed.length});
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.event < b.event; });
  std::vector<NeededSend> sends;
  for (const auto& send : all) {
    if (sends.empty() || sends.back().event != send.event) {
      sends.push_back(send);
    } else {
      sends.back().length = std::max(sends.back().length, send.length);
    }
  }
  for (auto& send : sends) {
    for (size_t i = 0; i < plan.replay_set.size(); ++i) {
      if (executes(graph.rdg(), plan.replay_set[i], send.event)) send.processor = processors[i];
    }
  }
  return sends;
}

Result<std::vector<uint64_t>> arrivals_of(const Trace& trace, const Plan& plan) {
  std::vector<uint64_t> arrivals;
  for (const auto& planned : plan.replay_set) {
    const EventIndex first = trace.intervals(planned.unit).at(planned.start).first_event;
    TRY(trace.for_each_event(planned.unit, first, planned.requisite_event, [&](EventIndex, const Event& event) {
      if (event.receive) arrivals.push_back(event.receive->arrival);
      return true;
    }));
  }
  return arrivals;
}

std::string describe(const PlanError& error) {
  return fmt::format("event {} of unit {} needs event {} of unit {}, which the trace does not hold",
                     error.needed_by.event, error.needed_by.unit, error.missing.event, error.missing.unit);
}

std::unique_ptr<ReplayTier> make_tier() {
  auto arena = GateArena::make();
  if (arena) return std::make_unique<ReplayTier>(std::move(*arena));
  fmt::print(stderr, "redrive: {}; every system call will stop\n", arena.error().message);
  return nullptr;
}

void print_divergence(const Trace& trace, const Divergence& d, const std::string& reproduce) {
  fmt::print(stderr, "redrive: divergence in unit {} ({}), interval {}, event {}\n  expected: {}\n  found:    {}\n",
             d.unit, trace.unit_name(d.unit), d.interval, d.event, d.expected, d.found);
  if (!d.stack.empty()) fmt::print(stderr, "  stack:\n{}", d.stack);
  if (!d.disassembly.empty()) fmt::print(stderr, "  code:\n{}", d.disassembly);
  fmt::print(stderr, "  reproduce: redrive replay {} {}\n", trace.directory(), reproduce);
}

}  // namespace redrive
