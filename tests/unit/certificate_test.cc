// What is predicted of replays, certificates on disk, and repairs: of graphs made by hand, and of random ones.
#include "supervisor/plan/certificate.h"

#include <algorithm>
#include <random>

#include "logstore/memory_storage.h"
#include "logstore/trace_additions.h"
#include "logstore/trace_files.h"
#include "supervisor/plan/repair.h"
#include "supervisor/plan/restore_cost.h"
#include "supervisor/plan/thinned.h"
#include "tests/unit/logstore_sample.h"
#include "tests/unit/unit_test.h"

namespace redrive::certificate_test {

namespace {

constexpr uint64_t kIntervalNs = 100'000'000;
constexpr EventIndex kEvents = 10;  // of an interval

ReplayCosts costs(uint32_t jobs, double restore_s = 0, const Pace& pace = {}) {
  return {jobs, pace, [restore_s](UnitId, IntervalIndex) { return restore_s; },
          [](UnitId, IntervalIndex) -> uint64_t { return 4096; }};
}

Rdg intervals_of(UnitId units, IntervalIndex intervals) {
  Rdg graph;
  for (UnitId unit = 1; unit <= units; ++unit) {
    for (IntervalIndex i = 0; i < intervals; ++i) {
      graph.units[unit].push_back({i * kEvents, (i + 1) * kEvents, kIntervalNs, true, std::nullopt});
    }
  }
  return graph;
}

uint64_t at_ns(EventIndex event) { return event % kEvents * (kIntervalNs / kEvents); }

void add_message(Rdg& graph, EventRef receiver, EventRef sender, uint64_t bytes) {
  graph.unlogged[receiver.unit].push_back({receiver, sender, at_ns(receiver.event), at_ns(sender.event), bytes});
}

// Each unit receives, at each even event, what the one before it in the ring sent at the event before.
Rdg ring(UnitId units, IntervalIndex intervals, uint64_t bytes) {
  Rdg graph = intervals_of(units, intervals);
  for (UnitId unit = 1; unit <= units; ++unit) {
    for (EventIndex event = 2; event < intervals * kEvents; event += 2) {
      add_message(graph, {unit, event}, {unit % units + 1, event - 1}, bytes);
    }
  }
  return graph;
}

void apply(const Repair& repair, Rdg& graph) {
  for (auto& [unit, unlogged] : graph.unlogged) {
    std::erase_if(unlogged, [&](const auto& dependence) { return repair.payloads.contains(dependence.receiver); });
  }
  for (const UnitId born : repair.births) graph.units.at(born).front().birth.reset();
}

uint64_t all_bytes(const Rdg& graph) {
  uint64_t sum = 0;
  for (const auto& [unit, unlogged] : graph.unlogged) {
    for (const auto& dependence : unlogged) sum += dependence.bytes;
  }
  return sum;
}

uint64_t bytes_of(const Repair& repair, const Rdg& graph) {
  uint64_t bytes = 0;
  for (const auto& [unit, unlogged] : graph.unlogged) {
    for (const auto& dependence : unlogged) bytes += repair.payloads.contains(dependence.receiver) * dependence.bytes;
  }
  return bytes;
}

double slowest_s(const Rdg& graph, const ReplayCosts& its_costs) {
  return certify(predict_all(graph, its_costs).value(), 1, its_costs).slowest.predicted_s;
}

struct SampleTrace {
  SampleTrace() {
    auto made = TraceWriter::create("/t", sample::settings(), storage);
    REQUIRE(made);
    sample::fill(**made);
    REQUIRE((*made)->finish(sample::recording_end()));
    trace = opened();
  }
  std::shared_ptr<Trace> opened() {
    auto result = Trace::open("/t", storage);
    REQUIRE_MESSAGE(result, result.error().message);
    return std::move(result).value();
  }
  MemoryStorage storage;
  std::shared_ptr<Trace> trace;
};

Certificate some_certificate(const Trace& trace) {
  const UnitId unit = trace.units().front().unit;
  Certificate certificate;
  certificate.bound_s = 2;
  certificate.jobs = 3;
  certificate.pace = {1.5, 1.25, 2, 3, 0.01, 0.02, 1e-5};
  certificate.intervals = 7;
  certificate.slowest = {unit, 0, 5, 1.5, 0.25, 1 << 20, 2.5, 0.125, 77};
  certificate.over = {certificate.slowest};
  return certificate;
}

}  // namespace

TEST_CASE("certificate: what is predicted is Graham's bound, and what a replay takes besides") {
  ReplaySums sums{1, 0.4};
  CHECK_EQ(predicted_s(sums, 1, {}), doctest::Approx(1));
  CHECK_EQ(predicted_s(sums, 2, {}), doctest::Approx(0.7));
  CHECK_EQ(predicted_s(sums, 4, {}), doctest::Approx(0.55));
  sums = {1, 0.4, 0.6, 0.2, 3, 100};
  Pace pace{1.5};
  pace.begin_s = 0.01;
  pace.start_s = 0.02;
  pace.message_s = 1e-4;
  CHECK_EQ(predicted_s(sums, 2, pace), doctest::Approx(1.5 * 0.7 + 0.4 + 0.01 + 2 * 0.02 + 0.01));
}

TEST_CASE("certificate: the prediction is Graham's bound with restores, at the pace that was measured") {
  Rdg graph = intervals_of(2, 1);
  add_message(graph, {1, 8}, {2, 4}, 10);
  const auto planned = plan(graph, 1, 0);
  REQUIRE(planned.plan);
  const PredictedReplay replay = predict(*planned.plan, costs(2, 0.02, {1.5}));
  CHECK_EQ(replay.intervals, 2);
  CHECK_EQ(replay.work_s, doctest::Approx(0.14));
  CHECK_EQ(replay.restore_s, doctest::Approx(0.04));
  CHECK_EQ(replay.memory_bytes, 8192);
  // Half of the work and the longest path (0.1), half of the restores and one of them.
  CHECK_EQ(replay.predicted_s, doctest::Approx(1.5 * (0.14 + 0.1) / 2 + (0.04 + 0.02) / 2));
}

TEST_CASE("certificate: an interval takes longer to restore the more threads it begins with") {
  const SampleTrace sample;
  const Trace& trace = *sample.trace;
  const ReplayCosts its_costs = costs_of(trace, 1);
  for (UnitId unit = 1; unit <= sample::kUnits; ++unit) {
    const double stub_s = trace.settings().restore_cost_s;
    CHECK_EQ(trace.intervals(unit)[1].threads, unit + 1);
    CHECK_EQ(its_costs.restore_s(unit, 1),
             doctest::Approx(stub_s * (1 + kThreadStubs * (unit + 1)) + restore_s(trace.stored_bytes(unit, 1))));
  }
}

TEST_CASE("certificate: each replay takes its time to begin, each interval to be started, and each message") {
  Rdg graph = intervals_of(2, 1);
  add_message(graph, {1, 8}, {2, 4}, 10);
  const auto planned = plan(graph, 1, 0);
  REQUIRE(planned.plan);
  ReplayCosts its_costs = costs(2, 0.02, {1.5});
  const double without_s = predict(*planned.plan, its_costs).predicted_s;
  its_costs.pace.start_s = 0.008;
  const PredictedReplay replay = predict(*planned.plan, its_costs);
  CHECK_EQ(replay.predicted_s, doctest::Approx(without_s + 0.008 * (2 / 2. + 0.5)));
  its_costs.pace.begin_s = 0.05;
  CHECK_EQ(overhead_s(replay.intervals, replay.messages, 2, its_costs.pace), doctest::Approx(0.062));
  CHECK_EQ(predict(*planned.plan, its_costs).predicted_s, doctest::Approx(without_s + 0.062));
  its_costs.pace.message_s = 0.001;
  CHECK_EQ(predict(*planned.plan, its_costs).messages, 1);
  CHECK_EQ(predict(*planned.plan, its_costs).predicted_s, doctest::Approx(without_s + 0.063));
}

TEST_CASE("certificate: an interval that is needed up to a send may take longer, because that time is not exact") {
  Rdg graph = intervals_of(2, 1);
  add_message(graph, {1, 8}, {2, 4}, 10);
  graph.units.at(1)[0].clock_error_ns = 50'000'000;  // it is needed whole
  graph.units.at(2)[0].clock_error_ns = 20'000'000;
  const auto replay_of = [&] {
    const auto planned = plan(graph, 1, 0);
    REQUIRE(planned.plan);
    return predict(*planned.plan, costs(2, 0, {1.5}));
  };
  CHECK_EQ(replay_of().work_s, doctest::Approx(0.14));
  CHECK_EQ(replay_of().clock_error_s, doctest::Approx(1.5 * 0.02));
  CHECK_EQ(replay_of().predicted_s, doctest::Approx(1.5 * ((0.14 + 0.1) / 2 + 0.02)));
  // It does not take longer than when it is needed whole.
  graph.units.at(2)[0].clock_error_ns = 1'000'000'000;
  CHECK_EQ(replay_of().clock_error_s, doctest::Approx(1.5 * 0.06));
}

TEST_CASE("certificate: names the slowest replay, and all that are longer than the bound") {
  const Rdg graph = ring(4, 2, 8);
  const auto its_costs = costs(2);
  const auto replays = predict_all(graph, its_costs).value();
  REQUIRE_EQ(replays.size(), 8);
  const double longest_s = std::max_element(replays.begin(), replays.end(), [](auto& a, auto& b) {
                             return a.predicted_s < b.predicted_s;
                           })->predicted_s;
  const Certificate kept = certify(replays, longest_s, its_costs);
  CHECK(kept.is_kept());
  CHECK_EQ(kept.slowest.predicted_s, longest_s);
  const Certificate broken = certify(replays, 0.15, its_costs);
  CHECK_FALSE(broken.is_kept());
  CHECK_EQ(broken.over.size(),
           std::count_if(replays.begin(), replays.end(), [](auto& replay) { return replay.predicted_s > 0.15; }));
}

TEST_CASE("certificate: plans that are too much together are not made") {
  const Rdg graph = ring(4, 2, 8);
  uint64_t work = 0;
  const auto replays = predict_all(graph, costs(2)).value();
  for (const auto& replay : replays) work += replay.intervals + replay.messages;
  CHECK(predict_all(graph, costs(2), work));
  CHECK_FALSE(predict_all(graph, costs(2), work - 1));
}

TEST_CASE("certificate: is kept in the trace until the trace changes") {
  SampleTrace sample;
  const auto none = kept_certificate(*sample.trace);
  REQUIRE(none);
  CHECK_FALSE(none->has_value());
  const Certificate certificate = some_certificate(*sample.trace);
  REQUIRE(keep_certificate(*sample.trace, certificate));
  const auto kept = kept_certificate(*sample.trace);
  REQUIRE(kept);
  REQUIRE(kept->has_value());
  CHECK(**kept == certificate);
  CHECK(is_same_promise(**kept, certificate));
  CHECK(check_trace(*sample.opened()).empty());

  auto additions = TraceAdditions::begin(*sample.trace);
  REQUIRE(additions);
  REQUIRE((*additions)->finish(sample.trace->settings()));
  const auto stale = kept_certificate(*sample.opened());
  REQUIRE(stale);
  CHECK_FALSE(stale->has_value());
}

TEST_CASE("certificate: one of intervals that the trace does not have is damage") {
  SampleTrace sample;
  Certificate certificate = some_certificate(*sample.trace);
  certificate.over.push_back({999, 0, 1, 1, 1, 0, 3});
  REQUIRE(keep_certificate(*sample.trace, certificate));
  const auto kept = kept_certificate(*sample.trace);
  REQUIRE_FALSE(kept);
  CHECK_EQ(kept.error().status, Status::damaged);
  CHECK_FALSE(check_trace(*sample.trace).empty());
}

TEST_CASE("certificate: a changed promise is not the same") {
  SampleTrace sample;
  const Certificate certificate = some_certificate(*sample.trace);
  Certificate other = certificate;
  other.over.clear();
  CHECK_FALSE(is_same_promise(certificate, other));
  other = certificate;
  other.slowest.predicted_s = 1;
  CHECK_FALSE(is_same_promise(certificate, other));
}

TEST_CASE("repair: nothing is added where the bound is kept") {
  const auto its_costs = costs(2);
  const Rdg graph = ring(6, 3, 8);
  CHECK(choose_repair(graph, slowest_s(graph, its_costs), its_costs).empty());
}

TEST_CASE("repair: a ring is cut into parts, not into single units") {
  const auto its_costs = costs(2);
  Rdg graph = ring(12, 4, 8);
  constexpr double kBound_s = 0.5;
  REQUIRE(slowest_s(graph, its_costs) > 2 * kBound_s);
  const Repair repair = choose_repair(graph, kBound_s, its_costs);
  CHECK(2 * bytes_of(repair, graph) < all_bytes(graph));
  apply(repair, graph);
  CHECK(slowest_s(graph, its_costs) <= kBound_s);
}

TEST_CASE("repair: small messages are kept rather than large ones") {
  const auto its_costs = costs(1);
  Rdg graph = intervals_of(3, 1);
  add_message(graph, {1, 5}, {2, 9}, 1 << 20);
  add_message(graph, {2, 5}, {3, 9}, 100);
  const Repair repair = choose_repair(graph, 0.21, its_costs);
  CHECK(repair.payloads == std::set<EventRef>{{2, 5}});
}

TEST_CASE("repair: the image of a child is stored if its parent takes too long to get to the fork") {
  const auto its_costs = costs(1);
  Rdg graph = intervals_of(2, 1);
  graph.units.at(2).front().birth = EventRef{1, 9};
  const Repair repair = choose_repair(graph, 0.15, its_costs);
  CHECK(repair.births == std::set<UnitId>{2});
  apply(repair, graph);
  CHECK(slowest_s(graph, its_costs) <= 0.15);
}

TEST_CASE("repair: where replays take a little too long, only the end of what is received is kept") {
  const auto its_costs = costs(2);
  Rdg graph = ring(8, 1, 8);
  const double bound_s = 0.95 * slowest_s(graph, its_costs);
  const Repair repair = choose_repair(graph, bound_s, its_costs);
  apply(repair, graph);
  CHECK(slowest_s(graph, its_costs) <= bound_s);
  CHECK(repair.payloads.size() <= 8 * kEvents / 2 / 4);
}

// All talk with all, as fast as they can.
Rdg chatter(UnitId units, EventIndex events) {
  const uint64_t event_ns = kIntervalNs / events;
  Rdg graph;
  for (UnitId unit = 1; unit <= units; ++unit) {
    graph.units[unit] = {{0, events, kIntervalNs, true, std::nullopt}};
    auto& unlogged = graph.unlogged[unit];
    for (EventIndex event = 1; event < events; ++event) {
      const auto sender = static_cast<UnitId>((unit + event % (units - 1)) % units + 1);
      unlogged.push_back({{unit, event}, {sender, event - 1}, event * event_ns, (event - 1) * event_ns, 8, false});
    }
  }
  return graph;
}

// Each cut is tried on few dependences. It would take minutes otherwise.
TEST_CASE("repair: of half a million messages between all units") {
  const auto its_costs = costs(2);
  Rdg graph = chatter(16, 1 << 15);
  const double bound_s = 0.9 * slowest_s(graph, its_costs);
  const Repair repair = choose_repair(graph, bound_s, its_costs);
  CHECK(4 * bytes_of(repair, graph) < all_bytes(graph));
  apply(repair, graph);
  CHECK(slowest_s(graph, its_costs) <= bound_s);
}

TEST_CASE("thinned: a small graph stays what it is") {
  const Rdg graph = chatter(3, 100);
  const Rdg same = thinned(graph, 300);
  CHECK_EQ(all_bytes(same), all_bytes(graph));
  for (const auto& [unit, unlogged] : graph.unlogged) CHECK_EQ(same.unlogged.at(unit).size(), unlogged.size());
}

TEST_CASE("thinned: plans have the same executions, which end a slice earlier at most") {
  const Rdg graph = chatter(6, 4096);
  const Rdg few = thinned(graph, 2000);
  CHECK_EQ(all_bytes(few), all_bytes(graph));
  size_t left = 0;
  for (const auto& [unit, unlogged] : few.unlogged) {
    left += unlogged.size();
    CHECK(std::ranges::is_sorted(unlogged, {}, [](const auto& each) { return each.receiver.event; }));
  }
  CHECK(left <= 2000);
  CHECK(left > 1000);
  const uint64_t slice_ns = kIntervalNs / 64 + kIntervalNs / 4096;  // 6 units receive from 5 others in each
  for (const auto& [unit, intervals] : graph.units) {
    for (const EventIndex until : {EventIndex{1000}, EventIndex{3333}, intervals.front().end_event}) {
      const auto exact = plan(graph, unit, 0, until).plan, rough = plan(few, unit, 0, until).plan;
      REQUIRE(exact.has_value());
      REQUIRE(rough.has_value());
      REQUIRE_EQ(rough->replay_set.size(), exact->replay_set.size());
      for (size_t i = 0; i < exact->replay_set.size(); ++i) {
        const auto &a = exact->replay_set[i], &b = rough->replay_set[i];
        CHECK_EQ(b.unit, a.unit);
        CHECK(b.cpu_ns <= a.cpu_ns);
        CHECK(b.cpu_ns + 2 * slice_ns >= a.cpu_ns);
      }
    }
  }
}

// Executions in which messages go forward in time: event numbers are a clock that all units share.
TEST_CASE("repair: of random executions, every replay keeps the bound then, if it can alone") {
  constexpr double kBound_s = 0.3;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](uint64_t n) { return random() % n; };
    const auto units = static_cast<UnitId>(2 + below(7));
    const auto intervals = static_cast<IntervalIndex>(1 + below(5));
    Rdg graph = intervals_of(units, intervals);
    for (UnitId unit = 1; unit <= units; ++unit) {
      for (EventIndex event = 1; event < intervals * kEvents; ++event) {
        const auto sender = static_cast<UnitId>(1 + below(units));
        if (below(2) || sender == unit) continue;
        const EventIndex sent = event - 1 - below(std::min<uint64_t>(event, 8));
        add_message(graph, {unit, event}, {sender, sent}, below(1000));
      }
      for (auto& interval : graph.units.at(unit)) interval.cpu_ns -= below(kIntervalNs / 2);
      auto& first = graph.units.at(unit).front();
      if (unit > 1 && below(3) == 0) first.birth = EventRef{unit - 1, 0};
    }
    const auto its_costs = costs(static_cast<uint32_t>(1 + below(3)), 0.005);
    Rdg repaired = graph;
    apply(choose_repair(graph, kBound_s, its_costs), repaired);
    const auto predicted = predict_all(repaired, its_costs).value();
    for (const auto& replay : predicted) {
      CAPTURE(seed);
      CAPTURE(replay.unit);
      CAPTURE(replay.interval);
      CHECK(replay.predicted_s <= kBound_s);
    }
    CHECK_EQ(predicted.size(), predict_all(graph, its_costs).value().size());
  }
}

}  // namespace redrive::certificate_test
