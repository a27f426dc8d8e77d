// mutant_fuzz [SEED [ITERATIONS]]: makes a small trace that says something other than what happened, in well-formed
// records with correct checksums (tests/fault/trace_mutation.h), and gives it to everything that reads traces without
// executing anything. Nothing may crash, hang or allocate without limit. A failure prints its seed.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "logstore/memory_storage.h"
#include "supervisor/cli/event_text.h"
#include "supervisor/cli/join_text.h"
#include "supervisor/evaluation/evaluation.h"
#include "supervisor/plan/breakpoint.h"
#include "supervisor/plan/certificate.h"
#include "supervisor/plan/graph.h"
#include "supervisor/plan/recovery_line.h"
#include "supervisor/plan/restore_cost.h"
#include "supervisor/replay/replay_set.h"
#include "tests/fault/trace_mutation.h"
#include "tests/fuzz/read_trace.h"
#include "tests/fuzz/seeds.h"

using namespace redrive;
using fuzz::require;

namespace {

constexpr unsigned kSecondsPerTrace = 20;  // much longer than any correct run
constexpr uint64_t kCatalogOnceIn = 256;   // making one takes as long as the rest of so many runs
constexpr UnitId kUnits = 5;
constexpr UnitId kJoinedUnit = 4, kShortUnit = 5;
constexpr IntervalIndex kIntervals = 3;
constexpr EventIndex kEventsPerInterval = 8;

Event call(int32_t number, int64_t result) {
  Event event;
  event.number = number;
  event.result = result;
  event.args = {3, 0x7fff'0000'0000, 64, 0, 0, 0};
  event.ip = 0x401000;
  return event;
}

Event sent(uint64_t channel, uint64_t length, uint64_t at_ns) {
  Event event = call(1, static_cast<int64_t>(length));
  event.send = Send{channel, length, at_ns};
  return event;
}

Event received(uint64_t channel, EventRef sender, uint64_t length, uint64_t arrival) {
  Event event = call(0, static_cast<int64_t>(length));
  event.receive = Receive{channel, arrival, 100 * arrival, false, {{sender, 0, length, 7}}};
  event.writes.push_back({0x7fff'0000'0000, length, MemoryWrite::Kind::message, {}});
  return event;
}

// All units do the same in the first interval; units 2 and 3 are born by events 1 and 2 of the first unit.
std::vector<Event> events_of(UnitId unit) {
  std::vector<Event> events;
  for (IntervalIndex interval = 0; interval < kIntervals; ++interval) {
    const EventIndex first = interval * kEventsPerInterval;
    const UnitId before = unit == 1 ? kUnits - 1 : unit - 1;
    events.push_back(call(39, 100 + unit));
    for (const UnitId child : {2, 3}) {
      events.push_back(call(56, 100 + child));
      if (unit == 1 && interval == 0) events.back().child_unit = child, events.back().send = Send{0, 0, child * 10};
    }
    events.push_back(sent(unit, 10, 1000 + unit));
    events.push_back(interval == 0 ? call(0, 1)
                                   : received(before, {before, first - kEventsPerInterval + 3}, 10, first));
    events.push_back(call(9, 0x7fff'0000'0000));
    events.back().map = MapSource{1, 0, interval, 4096};
    events.back().changes.push_back({ObjectChange::Kind::data, 2, 5, 4, 0, {1, 2, 3, 4}});
    events.push_back(call(230, 0));
    events.back().repeat = 10;
    events.push_back(call(15, 0));
    events.back().registers.emplace().general = Bytes(sizeof(user_regs_struct));
    events.back().kind = EventKind::signal;
  }
  return events;
}

UnitState state_of(UnitId unit, IntervalIndex interval) {
  UnitState state;
  for (uint32_t process = 0; process < 2; ++process) {
    auto& made = state.processes.emplace_back();
    made.process = process;
    made.pid = static_cast<int32_t>(100 + (process == 1 && unit == 3 ? kJoinedUnit : unit));
    made.brk = 0x60'0000;
    made.mappings.push_back(
        {0x40'0000, 0x40'4000, 5, false, 0, 1, 0, {}, 0, 0, uint64_t{1} << MADV_DONTFORK, "/bin/program"});
    made.mappings.push_back({0x50'0000, 0x50'2000, 3, true, 0, 0, 9, 8192, 0, 0, 0, "/dev/shm/object"});
    made.mappings.push_back({0x7ffe'0000'0000, 0x7ffe'0002'0000, 3, false, 0, 0, 0, {}, 0, 0, 0, "[stack]"});
    made.descriptors[1] = LocalDescriptor{1, 0x1000, 0xfff, 0x51};
    state.threads.push_back({process, process, interval == 1, false, {}, Bytes(576)});
  }
  state.zero_pages.push_back({0, 0x40'1000});
  if (unit == 3 && interval == 1) state.first_joined_process = state.first_joined_thread = 1;
  state.next_thread = state.next_process = 2;
  return state;
}

EndState end_state() { return {1, 2, 576, 3, {0x7ffe'0000'0000, 0x7ffe'0000'1000}}; }

TraceParts good_parts() {
  TraceParts parts;
  Settings settings{"fewest-bytes", 2, 1, 5, 0.01, {"program", "-x"}, "/home", "a host", 1'795'000'000'000'000'000};
  parts.journal.push_back(settings);
  parts.journal.push_back(ChannelRecord{1, "pipe", "pipe:[1]"});
  parts.journal.push_back(ChannelRecord{2, "unix", "/a/socket"});
  for (UnitId unit = 1; unit <= kUnits; ++unit) {
    const bool forked = unit == 2 || unit == 3;
    const EventRef parent = forked ? EventRef{1, unit - 1} : unit == 1 ? EventRef{} : EventRef{2, 1};
    const auto pid = static_cast<int32_t>(100 + unit);
    parts.journal.push_back(
        UnitRecord{unit, pid, parent, unit == 3 ? std::vector<UnitId>{kJoinedUnit} : std::vector<UnitId>{}});
    parts.events[unit] = events_of(unit);
    if (unit == kShortUnit) parts.events[unit].resize(kEventsPerInterval);
    for (IntervalIndex i = 0; i < (unit == kShortUnit ? 1 : kIntervals); ++i) {
      const bool has_image = unit == 3 || unit == kShortUnit ? i > 0 || !forked : unit == 1 && i == 1;
      const auto kind = i > 0 ? CheckpointKind::image : forked ? CheckpointKind::fork : CheckpointKind::exec;
      const EventIndex first = i * kEventsPerInterval;
      parts.journal.push_back(IntervalRecord{unit, i, kind, first, has_image, pid, "program -x", 1000});
      parts.journal.push_back(IntervalEnd{unit, i, 1'000'000, first + kEventsPerInterval, encode(end_state())});
      if (!has_image) continue;
      parts.journal.push_back(ImagePublished{unit, i, 0, 0, 0, 0, 0, false});
      auto& image = parts.images.emplace_back(TraceParts::ImageParts{unit, i, state_of(unit, i), {}});
      for (const Address address : {0x40'0000, 0x50'0000, 0x50'1000}) {
        image.pages.push_back({0, address, parts.pages.size() % 3});
        if (parts.pages.size() < 3) parts.pages.emplace_back(kPageSize, static_cast<uint8_t>(1 + parts.pages.size()));
      }
    }
  }
  parts.journal.push_back(ShortUnit{kShortUnit, 0, 0});
  parts.journal.push_back(Join{3, kJoinedUnit, kEventsPerInterval, 104, "/dev/shm/object"});
  parts.journal.push_back(FileRecord{1, "/bin/program", std::string(32, 'a'), 16384});
  parts.payloads[3].emplace_back(kEventsPerInterval + 4, Bytes(10, 3));
  parts.journal.push_back(PayloadsPublished{3, 0, 0});
  parts.journal.push_back(Refusal{2, "io_uring_setup", "ENOSYS", 3});
  parts.journal.push_back(Unsure{3, 17, "a reason"});
  parts.journal.push_back(Interception{2, 10, 5});
  parts.journal.push_back(StoppingSite{"/lib/x", 0x1234, "syscall", 5, false});
  parts.journal.push_back(JournalEnd{{0, "exited", 1.5, 0, {}}, {}});
  return parts;
}

void read_states(const Trace& trace) {
  for (const auto& unit : trace.units()) {
    for (const auto& interval : trace.intervals(unit.unit)) {
      if (const auto* end = trace.interval_end(unit.unit, interval.interval)) (void)decode_end_state(end->state);
      const auto image = trace.image(unit.unit, interval.interval);
      if (!image) continue;
      UnitState state;
      Decoder in(image->header);
      if (!decode(in, state)) continue;
      Encoder again;
      encode(state, again);
      UnitState same;
      Decoder from(again.data());
      require(decode(from, same), "a state does not come back");
      for (const auto& process : state.processes) (void)state.memory_of(process.process);
      for (const auto& thread : state.threads) (void)same_xstate(thread.xstate, state.threads.front().xstate);
    }
  }
}

// Does what run_set() does, with the sends of the trace made by hand.
void pass_messages(const Trace& trace, const DependenceGraph& graph, const Plan& plan) {
  const auto store = store_for(graph, plan);
  if (!store) return;
  for (size_t i = 0; i < plan.replay_set.size(); ++i) (*store)->interval_starts(i, 0);
  const auto each_event = [&](auto visit) {
    for (const auto& planned : plan.replay_set) {
      const EventIndex first = trace.intervals(planned.unit).at(planned.start).first_event;
      (void)static_cast<bool>(
          trace.for_each_event(planned.unit, first, planned.requisite_event, [&](EventIndex at, const Event& event) {
            visit(EventRef{planned.unit, at}, event);
            return true;
          }));
    }
  };
  each_event([&](EventRef at, const Event&) { (*store)->publish(at, Bytes(1 + at.event % 20, 1)); });
  for (size_t i = 1; i < plan.replay_set.size(); ++i) (*store)->interval_ended(i, std::nullopt);
  each_event([&](EventRef, const Event& event) {
    if (!event.receive || event.receive->logged) return;
    for (const auto& part : event.receive->parts) {
      const auto bytes = (*store)->payload(part);
      require(!bytes || bytes->size() == part.length, "a payload of another length");
    }
  });
}

void read_graph(const Trace& trace) {
  auto opened = DependenceGraph::open(trace);
  if (!opened) return;
  DependenceGraph& graph = *opened;
  for (const auto& unit : trace.units()) {
    for (const auto& interval : trace.intervals(unit.unit)) {
      (void)is_cut(trace, graph.rdg(), unit.unit, interval.interval);
      (void)check_until(trace, unit.unit, interval.interval, interval.first_event + 3);
      (void)restore_s(trace, unit.unit, interval.interval);
      const auto planned = graph.plan(unit.unit, interval.interval);
      if (!planned) return;
      if (!planned->plan) {
        (void)describe(*planned->error);
        continue;
      }
      (void)predict(*planned->plan, costs_of(trace, 2));
      (void)spread(planned->plan->replay_set, {0, 1});
      for (const auto& one : planned->plan->replay_set) (void)birth_of(graph.rdg(), one);
      pass_messages(trace, graph, *planned->plan);
    }
  }
}

void stop_at_breakpoints(const Trace& trace, uint64_t seed) {
  const auto communication = read_communication(trace);
  if (!communication) return;
  for (const auto& places : {std::vector<EventRef>{{1, seed % 24}}, {{2, 5 + seed % 16}, {1, seed % 20}}, {{3, 12}}}) {
    const auto breakpoint = causal_breakpoint(*communication, places);
    if (!breakpoint) continue;
    auto graph = DependenceGraph::open(trace);
    if (!graph) return;
    const auto line = recovery_line(*communication, *graph, *breakpoint);
    if (!line) continue;
    (void)plan_to_ends(*line, *graph);
    const auto later = later_breakpoint(*communication, *breakpoint, {{1, 20}});
    if (later) (void)plan_to(*line, *communication, *graph, *breakpoint, *later);
  }
}

void evaluate(const Trace& trace, uint64_t seed) {
  const auto execution = read_execution(trace);
  if (!execution) return;
  PolicyParameters parameters;
  (void)parse_policy_text(trace.settings().policy, parameters);
  parameters.critical_path_ns = 2'000'000;
  parameters.checkpoint_period_ns = 1'000'000;
  const auto& all = policies();
  const auto policy = all[seed % all.size()].make(parameters);
  CheckpointPlacement placement;
  placement.lengths_known = seed % 2;
  const auto decided = decide(*execution, *policy, parameters, placement);
  if (!decided) return;
  (void)count_logged(*execution, *decided);
  (void)measure(*execution, *decided, 2);
}

void show(const Trace& trace) {
  size_t shown = 0;
  for (const auto& unit : trace.units()) {
    (void)static_cast<bool>(trace.for_each_event(unit.unit, 0, UINT64_MAX, [&](EventIndex index, const Event& event) {
      const Ended ended = what_ended(trace, unit.unit, 0, index, event);
      shown += event_text(event).size() + event_notes(event, ended).size();
      return true;
    }));
  }
  (void)describe_joins(trace);
  (void)certificate_of(trace);
}

TraceFiles make_directories(MemoryStorage& storage) {
  const TraceFiles files{"/t"};
  for (const auto& directory : {files.directory, files.events(), files.files(), files.payloads()}) {
    (void)static_cast<bool>(storage.make_directory(directory));
  }
  return files;
}

void one_trace(const TraceParts& good, uint64_t seed) {
  MemoryStorage storage;
  const TraceFiles files = make_directories(storage);
  Mutation mutation(seed);
  TraceParts parts = good;
  mutation.change(parts);
  if (seed % 8 == 0) std::erase_if(parts.journal, [](const auto& r) { return std::holds_alternative<JournalEnd>(r); });
  auto journal = write_contents(parts, storage, files, nullptr);
  require(static_cast<bool>(journal), "cannot write a trace");
  mutation.change(*journal);
  require(static_cast<bool>(write_journal(*journal, storage, files)), "cannot write a journal");

  const auto opened = Trace::open(files.directory, storage);
  if (!opened) return;
  (void)fuzz::read_all(**opened, seed % kCatalogOnceIn == 0);
  read_states(**opened);
  show(**opened);
  read_graph(**opened);
  stop_at_breakpoints(**opened, seed);
  evaluate(**opened, seed);
}

// An undamaged trace can be planned completely, and the only damage found is that its file copy is missing.
void expect_good(const TraceParts& good) {
  MemoryStorage storage;
  const TraceFiles files = make_directories(storage);
  const auto journal = write_contents(good, storage, files, nullptr);
  require(journal && write_journal(*journal, storage, files), "cannot write a trace");
  const auto trace = Trace::open(files.directory, storage);
  require(trace && check_trace(**trace).size() == 1, "an undamaged trace is reported");
  auto graph = DependenceGraph::open(**trace);
  require(static_cast<bool>(graph), "no graph of an undamaged trace");
  for (UnitId unit = 1; unit < kUnits; ++unit) {
    const auto planned = graph->plan(unit, kIntervals - 1);
    require(planned && planned->plan, "an undamaged trace cannot be planned");
  }
  const auto communication = read_communication(**trace);
  const auto breakpoint = communication ? causal_breakpoint(*communication, {{1, 20}}) : Error{""};
  require(breakpoint && recovery_line(*communication, *graph, *breakpoint), "no breakpoint in an undamaged trace");
}

}  // namespace

int main(int argc, char** argv) {
  const TraceParts good = good_parts();
  expect_good(good);
  return fuzz::run(argc, argv, 5000, "traces", [&](uint64_t seed) {
    ::alarm(kSecondsPerTrace);
    one_trace(good, seed);
  });
}
