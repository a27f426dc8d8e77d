// The recorder on a simulated kernel: random orders of stops, births, ends and signals. Whether one thread of a unit at
// a time runs user code, and whether queued signals keep their order, the kernel sees itself; the log must then hold,
// in its order, what the kernel did. REDRIVE_EXECUTIONS=N runs N executions (`make simulate`). A failure prints its
// seed; REDRIVE_SEED=S runs only that one.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "logstore/memory_storage.h"
#include "logstore/policy/policy.h"
#include "supervisor/record/recorder.h"
#include "tests/unit/simulated_kernel.h"
#include "tests/unit/simulation.h"
#include "tests/unit/unit_test.h"

namespace redrive::recorder_simulation_test {
using namespace redrive::simulation;

namespace {

using Logged = SimulatedKernel::Logged;

constexpr uint64_t kPeriod_ns = 500'000;  // of checkpoints

// What was recorded of one execution.
struct Recorded {
  std::shared_ptr<Trace> trace;
  RecordingEnd end;
};

Recorded record(uint64_t seed, SimulatedKernel& kernel, SimulatedKernel::Calls calls, Storage& storage) {
  auto writer = TraceWriter::create("/t", Settings{}, storage);
  REQUIRE(writer);
  const auto policy = make_policy("none", PolicyParameters{});
  REQUIRE(policy);
  RecorderLimits limits;
  limits.traps.cpuid = false;  // the program would have to ask for that
  // A checkpoint without an image, because there is hardly any memory.
  limits.checkpoint_period_ns = seed % 2 ? kPeriod_ns : 0;
  limits.virtual_checkpoints = true;
  limits.first_steps = {};
  std::unique_ptr<GateArena> arena;
  if (calls == SimulatedKernel::Calls::served) {
    auto made = GateArena::make();
    REQUIRE(made);
    arena = std::move(*made);
  }
  Recorder recorder(kernel, **writer, **policy, limits, std::move(arena));
  recorder.adopt(SimulatedKernel::kFirstPid, false);
  Recorded recorded;
  recorded.end = recorder.run({[](const LeftBehind&) {}});
  REQUIRE((*writer)->finish(recorded.end));
  auto trace = Trace::open("/t", storage);
  REQUIRE(trace);
  recorded.trace = *trace;
  return recorded;
}

// The log of a unit, one call after the other as the kernel has it.
std::vector<Logged> log_of(const Trace& trace, const UnitRecord& unit, uint64_t& turns_amid_code) {
  std::map<ThreadSerial, pid_t> tids{{0, unit.pid}};
  std::vector<std::vector<Logged>> events;  // with what each series stands for
  const auto add = [&](EventIndex, const Event& event) {
    const pid_t tid = tids.at(event.thread);
    if (event.child_thread) tids[event.child_thread] = static_cast<pid_t>(event.result);
    std::vector<Logged> logged;
    if (event.kind == EventKind::preemption) {
      ++turns_amid_code;
    } else if (event.kind == EventKind::signal) {
      logged = {{Logged::What::signal, tid, event.number}};
    } else if (event.fatal) {
      logged = {{Logged::What::end, tid, event.number}};
    } else {
      if (event.kind != EventKind::exit) logged.push_back({Logged::What::entry, tid, event.number});
      if (event.kind != EventKind::entry) logged.push_back({Logged::What::exit, tid, event.number, event.result});
    }
    events.push_back(logged);
    for (uint64_t again = 1; again < event.repeat; ++again) {
      events.push_back(events[events.size() - event.cycle]);
    }
    return true;
  };
  REQUIRE(trace.for_each_event(unit.unit, 0, trace.event_count(unit.unit), add));
  std::vector<Logged> all;
  for (const auto& logged : events) all.insert(all.end(), logged.begin(), logged.end());
  return all;
}

std::string text_of(const Logged& logged) {
  static constexpr const char* kWhat[] = {"entry", "exit", "signal", "end"};
  return fmt::format("{} of {} by {} with {}", kWhat[static_cast<int>(logged.what)], logged.number, logged.tid,
                     logged.result);
}

Complaint compare(const std::vector<Logged>& log, const std::vector<Logged>& kernels) {
  const auto [ours, its] = std::mismatch(log.begin(), log.end(), kernels.begin(), kernels.end());
  if (ours == log.end() && its == kernels.end()) return {};
  return fmt::format("event {}: logged {}, but it was {}", ours - log.begin(),
                     ours == log.end() ? "nothing" : text_of(*ours), its == kernels.end() ? "nothing" : text_of(*its));
}

struct Counts {
  uint64_t units = 0, intervals = 0, logged = 0, handled = 0, served = 0, turns_amid_code = 0;
};

Complaint run(uint64_t seed, SimulatedKernel::Calls how, Counts& counts) {
  INFO("seed ", seed);
  SimulatedKernel kernel(seed, how);
  MemoryStorage storage;
  const Recorded recorded = record(seed, kernel, how, storage);
  const auto& units = recorded.trace->units();
  if (units.size() != kernel.logs().size()) return fmt::format("{} units, not {}", units.size(), kernel.logs().size());
  for (const UnitRecord& unit : units) {
    const auto kernels = kernel.logs().find(unit.pid);
    if (kernels == kernel.logs().end()) return fmt::format("{} is no unit", unit.pid);
    const auto log = log_of(*recorded.trace, unit, counts.turns_amid_code);
    if (const auto complaint = compare(log, kernels->second)) return fmt::format("unit {}, {}", unit.unit, *complaint);
    counts.intervals += recorded.trace->intervals(unit.unit).size();
    counts.logged += log.size();
    for (const Logged& logged : log) counts.handled += logged.what == Logged::What::signal;
  }
  counts.units += units.size();
  uint64_t calls = 0, served = 0;
  for (const auto& unit : recorded.trace->interceptions()) calls += unit.stopped, served += unit.served;
  if (calls != kernel.calls()) return fmt::format("{} stopped calls were counted, not {}", calls, kernel.calls());
  if (served != kernel.served_calls())
    return fmt::format("{} served calls were counted, not {}", served, kernel.served_calls());
  counts.served += served;
  if (recorded.end.exit_status != kernel.root_end().shell_status()) return "another exit status";
  return {};
}

void run_all(SimulatedKernel::Calls how) {
  const char* const wanted = std::getenv("REDRIVE_EXECUTIONS");
  const uint64_t executions = wanted ? std::strtoull(wanted, nullptr, 10) : kSeeds;
  Counts counts;
  size_t wrong = 0;
  for_each_seed(executions, [&](uint64_t seed) {
    const auto complaint = run(seed, how, counts);
    if (complaint && ++wrong <= 3) CHECK_MESSAGE(!complaint, again(seed, complaint));
  });
  CHECK_EQ(wrong, 0);
  if (std::getenv("REDRIVE_SEED")) return;
  CHECK_GT(counts.units, executions);  // otherwise the simulation is too easy
  CHECK_GT(counts.intervals, counts.units + executions);
  CHECK_GT(counts.handled, executions);
  if (how == SimulatedKernel::Calls::served) CHECK_GT(counts.served, executions);
  if (how == SimulatedKernel::Calls::stop) CHECK_GT(counts.turns_amid_code, executions / 4);
  if (wanted) {
    std::cout << executions << " executions, " << counts.units << " units, " << counts.logged << " events, "
              << counts.handled << " signals handled, " << counts.served << " calls served, " << wrong
              << " executions wrong\n";
  }
}

}  // namespace

TEST_CASE("the recorder on a simulated kernel logs what happened, in its order") {
  run_all(SimulatedKernel::Calls::stop);
}

TEST_CASE("the recorder on a simulated kernel: calls that are served in process") {
  run_all(SimulatedKernel::Calls::served);
}

}  // namespace redrive::recorder_simulation_test
