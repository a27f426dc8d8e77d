#include "supervisor/replay_set.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <numeric>
#include <stop_token>
#include <thread>

#include "interceptors/trapped_instructions.h"

namespace redrive {
namespace {

EventIndex first_event(const Rdg& graph, const PlannedInterval& planned) {
  return graph.units.at(planned.unit).at(planned.start).first_event;
}

bool executes(const Rdg& graph, const PlannedInterval& planned, EventRef event) {
  return planned.unit == event.unit && first_event(graph, planned) <= event.event &&
         event.event < planned.requisite_event;
}

// Lets everybody run on all processors if the replay takes long. The kernel can starve a thread that has to stay on one
// for as long as other sessions keep that busy (sched(7), autogroup).
class Watch {
 public:
  explicit Watch(const std::vector<int>& processors)
      : thread_([this, processors](const std::stop_token& over) {
          cpu_set_t all;
          CPU_ZERO(&all);
          for (const int processor : processors) CPU_SET(static_cast<size_t>(processor), &all);
          std::unique_lock lock(mutex_);
          while (!ended_.wait_for(lock, over, kPatience, [&] { return over.stop_requested(); })) release(all);
        }) {}

 private:
  static constexpr auto kPatience = std::chrono::seconds(1);

  // Our threads, and those of their children: the stubs.
  static void release(const cpu_set_t& processors) {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream children(task.path() / "children");
      release_task(task.path(), processors);
      for (std::string pid; children >> pid;) {
        std::error_code gone;
        for (std::filesystem::directory_iterator thread("/proc/" + pid + "/task", gone), end; thread != end;
             thread.increment(gone)) {
          release_task(thread->path(), processors);
        }
      }
    }
  }
  static void release_task(const std::filesystem::path& task, const cpu_set_t& processors) {
    sched_setaffinity(std::stoi(task.filename()), sizeof processors, &processors);
  }

  std::mutex mutex_;
  std::condition_variable_any ended_;
  std::jthread thread_;
};

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

Result<SetOutcome> run_set(const SetRun& run, const Plan& plan, const std::function<ReplayerOptions(size_t)>& options) {
  const auto& members = plan.replay_set;
  const std::vector<int> processors = spread(members, run.processors);
  ASSIGN_OR_RETURN(const auto made, MessageStore::make(sends_of(run.graph, plan, processors),
                                                       births_of(run.graph.rdg(), plan), members.size()));
  MessageStore& store = *made;
  if (run.total_order) {
    ASSIGN_OR_RETURN(auto arrivals, arrivals_of(run.trace, plan));
    store.keep_order_of(std::move(arrivals));
  }
  std::vector<std::optional<Result<Replayer::Outcome>>> outcomes(members.size());
  const auto redrive_one = [&](size_t i) {
    Replayer replayer(run.trace, members[i], birth_of(run.graph.rdg(), members[i]), store, processors[i], run.tier,
                      options(i));
    outcomes[i] = replayer.run();
    store.interval_ended(!*outcomes[i] || (*outcomes[i])->divergence);
  };
  const Watch watch(run.processors);
  std::vector<std::thread> threads;
  for (size_t i = 1; i < members.size(); ++i) threads.emplace_back(redrive_one, i);
  threads.emplace_back(redrive_one, 0);
  for (auto& thread : threads) thread.join();
  SetOutcome all;
  for (auto& outcome : outcomes) all.members.push_back(std::move(*outcome));
  all.arrivals = store.turns_taken();
  return all;
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
      ReplayerOptions how;  // from now on
      ASSIGN_OR_RETURN(const PlanResult planned, graph.plan(unit.unit, interval.interval));
      if (!planned.plan) return Error{describe(*planned.error)};
      ASSIGN_OR_RETURN(const auto outcomes, run_set(run, *planned.plan, [&](size_t) { return how; }));
      for (const auto& outcome : outcomes.members) {
        if (!outcome) return outcome.error();
        if (!outcome->divergence) continue;
        return Error{fmt::format("interval {} of unit {} diverges: see redrive replay", interval.interval, unit.unit),
                     Status::divergence};
      }
      times_s.push_back(outcomes.members.front()->seconds);
    }
  }
  return times_s;
}

}  // namespace redrive
