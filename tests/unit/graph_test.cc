// The dependence graph of traces, above all of traces that a killed recorder left.
#include "supervisor/plan/graph.h"

#include "logstore/memory_storage.h"
#include "supervisor/evaluation/execution.h"
#include "tests/unit/unit_test.h"

namespace redrive::graph_test {

namespace {

// A trace written by hand.
class Written {
 public:
  Written() : writer_(TraceWriter::create("/t", Settings{}, storage_).value()) {}

  // The unit begins with a fork, or else with a program, whose image is stored at once, if at all.
  void unit(UnitId id, EventRef parent = {}, bool stored = true) {
    bare_unit(id, parent);
    interval(id, parent.unit ? CheckpointKind::fork : CheckpointKind::exec);
    if (!parent.unit && stored) image(id);
  }
  // A unit without any interval.
  void bare_unit(UnitId id, EventRef parent = {}) {
    writer_->add(UnitRecord{id, static_cast<int32_t>(100 + id), parent, {}});
  }
  void interval(UnitId id, CheckpointKind kind = CheckpointKind::image) {
    const IntervalIndex index = intervals_[id]++;
    writer_->add(IntervalRecord{id, index, kind, count_[id], false, 0, "program", 0});
  }
  // Publishes the image of the unit's last interval.
  void image(UnitId id) {
    REQUIRE(writer_->publish_image(id, intervals_[id] - 1, [](const AddPages&) { return Bytes(); }));
  }
  void end_interval(UnitId id, uint64_t cpu_ns) {
    writer_->add(IntervalEnd{id, intervals_[id] - 1, cpu_ns, count_[id]});
  }
  void work(UnitId id, int events = 1) {
    for (int i = 0; i < events; ++i) append(id, Event{});
  }
  void join(UnitId id, UnitId joined) { writer_->add(Join{id, joined, count_[id], 0, ""}); }
  void preempted(UnitId id, Preempted why) {
    Event event;
    event.kind = EventKind::preemption;
    event.args[0] = static_cast<uint64_t>(why);
    append(id, event);
  }
  EventRef send(UnitId id) {
    Event event;
    event.send = Send{1, 1, at_ns(id)};
    return append(id, event);
  }
  EventRef receive(UnitId id, const std::vector<EventRef>& senders, bool logged = false) {
    Event event;
    event.receive = Receive{1, 1, at_ns(id), logged, {}};
    for (const auto& sender : senders) event.receive->parts.push_back({sender, 0, 1, 0});
    return append(id, event);
  }
  // The recorder is killed; reads what it wrote.
  std::shared_ptr<Trace> killed() {
    REQUIRE(writer_->flush());
    writer_.reset();
    return opened();
  }
  std::shared_ptr<Trace> finished() {
    REQUIRE(writer_->finish({}));
    writer_.reset();
    return opened();
  }
  // The whole graph.
  Rdg graph() {
    const auto trace = killed();
    return open_graph(*trace).rdg();
  }
  static DependenceGraph open_graph(const Trace& trace) {
    auto graph = DependenceGraph::open(trace);
    REQUIRE_MESSAGE(graph, graph.error().message);
    return std::move(graph).value();
  }

  uint64_t at_ns(UnitId id) { return 1000 * id + count_[id]; }

 private:
  std::shared_ptr<Trace> opened() {
    auto trace = Trace::open("/t", storage_);
    REQUIRE_MESSAGE(trace, trace.error().message);
    return std::move(trace).value();
  }
  EventRef append(UnitId id, const Event& event) {
    writer_->append(id, event);
    return {id, count_[id]++};
  }

  MemoryStorage storage_;
  std::unique_ptr<TraceWriter> writer_;
  std::map<UnitId, EventIndex> count_;
  std::map<UnitId, IntervalIndex> intervals_;
};

// "0-3 3-5": the events of a unit's intervals.
std::string extents(const Rdg& graph, UnitId unit) {
  std::string out;
  for (const auto& interval : graph.units.at(unit)) {
    if (!out.empty()) out += " ";
    out += std::to_string(interval.first_event) + "-" + std::to_string(interval.end_event);
  }
  return out;
}

}  // namespace

TEST_CASE("extents of intervals that ended, that did not, and the last") {
  Written trace;
  trace.unit(1);
  trace.work(1, 3);
  trace.end_interval(1, 500);
  trace.interval(1);
  trace.work(1, 2);
  trace.interval(1);
  trace.work(1, 4);
  const auto read = trace.killed();
  const auto check = [&](IntervalIndex index, EventIndex first, EventIndex end, uint64_t cpu_ns) {
    const IntervalExtent extent = interval_extent(*read, 1, index);
    CHECK_EQ(extent.first_event, first);
    CHECK_EQ(extent.end_event, end);
    CHECK_EQ(extent.cpu_ns, cpu_ns);
  };
  check(0, 0, 3, 500);
  check(1, 3, 5, 0);
  check(2, 5, 9, 0);
}

TEST_CASE("a message is what another unit of the trace sent") {
  const auto received = [](std::vector<EventRef> senders) {
    Receive receive;
    for (const auto& sender : senders) receive.parts.push_back({sender, 0, 1, 0});
    return is_message(2, receive);
  };
  CHECK(received({{1, 5}}));
  CHECK(received({{2, 5}, {1, 5}}));
  CHECK_FALSE(received({{2, 5}}));
  CHECK_FALSE(received({{0, 0}}));
  CHECK_FALSE(received({}));
}

TEST_CASE("dependences are the unlogged parts from other intervals") {
  Written trace;
  trace.unit(1);
  trace.unit(2);
  trace.work(1, 5);
  const uint64_t sent_at_ns = trace.at_ns(1);
  const EventRef from_1 = trace.send(1);
  const EventRef own_earlier = trace.send(2);
  trace.interval(2);
  const EventRef own = trace.send(2);
  trace.receive(2, {from_1}, true);  // logged
  trace.receive(2, {own});           // within the interval
  trace.receive(2, {{0, 0}});        // from outside
  const uint64_t received_at_ns = trace.at_ns(2);
  const EventRef receiver = trace.receive(2, {from_1, own, own_earlier});
  const Rdg graph = trace.graph();

  CHECK(graph.unlogged.at(1).empty());
  const auto& found = graph.unlogged.at(2);
  REQUIRE_EQ(found.size(), 2);
  CHECK(found[0].receiver == receiver);
  CHECK(found[0].sender == from_1);
  CHECK_EQ(found[0].receiver_at_ns, received_at_ns);
  CHECK_EQ(found[0].sender_at_ns, sent_at_ns);
  CHECK(found[1].sender == own_earlier);
  CHECK_EQ(extents(graph, 1), "0-6");
  CHECK_EQ(extents(graph, 2), "0-1 1-6");
}

TEST_CASE("what an interval can start from") {
  Written trace;
  trace.unit(1);
  trace.work(1, 4);
  trace.unit(2, {1, 3});
  trace.work(2);
  trace.interval(2);  // its image was never published
  trace.work(2);
  trace.interval(2);
  trace.image(2);
  trace.unit(3, {1, 3});
  trace.image(3);  // a fork with an image of its own
  trace.work(2);
  trace.work(3);
  const Rdg graph = trace.graph();
  CHECK(graph.units.at(1)[0].startable);
  CHECK_FALSE(graph.units.at(1)[0].birth);
  const auto& forked = graph.units.at(2);
  REQUIRE_EQ(forked.size(), 3);
  CHECK(forked[0].startable);
  REQUIRE(forked[0].birth);
  CHECK(*forked[0].birth == EventRef{1, 3});
  CHECK_FALSE(forked[1].startable);
  CHECK_FALSE(forked[1].birth);
  CHECK(forked[2].startable);
  CHECK_FALSE(graph.units.at(3)[0].birth);
}

TEST_CASE("an interval ends before a receive whose send is missing") {
  Written trace;
  trace.unit(1);
  trace.unit(2);
  trace.work(1, 2);
  trace.work(2, 3);
  SUBCASE("the sender's log is too short") { trace.receive(2, {{1, 2}}); }
  SUBCASE("the sender has no log") { trace.receive(2, {{9, 0}}); }
  SUBCASE("one part of several is missing") { trace.receive(2, {{1, 1}, {1, 7}}); }
  SUBCASE("several are missing") {
    trace.receive(2, {{1, 5}});
    trace.receive(2, {{1, 6}});
  }
  trace.work(2, 2);
  const Rdg graph = trace.graph();
  CHECK_EQ(extents(graph, 1), "0-2");
  CHECK_EQ(extents(graph, 2), "0-3");
  CHECK(plan(graph, 2, 0).plan);
  CHECK_FALSE(graph.interval_of({2, 3}));
}

TEST_CASE("a receive that was logged needs no send") {
  Written trace;
  trace.unit(1);
  trace.unit(2);
  trace.work(1);
  trace.receive(2, {{1, 7}}, true);
  trace.work(2);
  CHECK_EQ(extents(trace.graph(), 2), "0-2");
}

TEST_CASE("a cut takes away what others received from there") {
  Written trace;
  for (UnitId id = 1; id <= 5; ++id) trace.unit(id);
  // Each unit passes on what it got from the one before; the send to the first one is missing. Later units come first
  // in the trace's order, so that one pass is not enough.
  trace.work(5, 2);
  trace.receive(5, {{1, 99}});
  EventRef last = trace.send(5);
  for (UnitId id = 4; id >= 1; --id) {
    trace.work(id, static_cast<int>(id));
    trace.receive(id, {last});
    last = trace.send(id);
  }
  const Rdg graph = trace.graph();
  CHECK_EQ(extents(graph, 5), "0-2");
  for (UnitId id = 1; id <= 4; ++id) {
    CAPTURE(id);
    CHECK_EQ(extents(graph, id), "0-" + std::to_string(id));
    CHECK(plan(graph, id, 0).plan);
  }
}

TEST_CASE("what was sent before a cut stays") {
  Written trace;
  trace.unit(1);
  trace.unit(2);
  const EventRef before = trace.send(1);
  trace.receive(1, {{2, 50}});
  const EventRef behind = trace.send(1);
  trace.receive(2, {before});
  trace.work(2);
  trace.receive(2, {behind});
  const Rdg graph = trace.graph();
  CHECK_EQ(extents(graph, 1), "0-1");
  CHECK_EQ(extents(graph, 2), "0-2");
}

TEST_CASE("after a cut, only intervals with an image stay") {
  Written trace;
  trace.unit(1);
  trace.work(1);
  trace.receive(1, {{2, 50}});
  trace.interval(1);  // without an image: executed through the cut
  trace.work(1, 2);
  trace.interval(1);  // ditto
  trace.work(1, 2);
  trace.interval(1);
  trace.image(1);
  trace.work(1, 3);
  trace.interval(1);
  trace.work(1, 2);
  const Rdg graph = trace.graph();
  CHECK_EQ(extents(graph, 1), "0-1 2-2 4-4 6-9 9-11");
  CHECK(plan(graph, 1, 3).plan);
  CHECK(plan(graph, 1, 4).plan);
}

TEST_CASE("after a cut and an interval without events, nothing stays either") {
  Written trace;
  trace.unit(1);
  trace.work(1);
  trace.receive(1, {{2, 50}});
  trace.interval(1);
  trace.interval(1);
  trace.work(1, 2);
  CHECK_EQ(extents(trace.graph(), 1), "0-1 2-2 2-2");
}

TEST_CASE("a unit whose fork was cut off was never born") {
  Written trace;
  trace.unit(1);
  trace.receive(1, {{9, 0}});
  trace.work(1);  // the fork, event 1
  trace.unit(2, {1, 1});
  const EventRef sent = trace.send(2);
  trace.work(2);  // a fork of its own, event 1
  trace.interval(2);
  trace.work(2);
  trace.unit(3, {2, 1});
  trace.work(3);
  trace.unit(4, {1, 1});
  trace.image(4);  // does without the fork
  trace.work(4, 2);
  trace.unit(5);
  trace.work(5);
  trace.receive(5, {sent});
  trace.work(5);
  const Rdg graph = trace.graph();
  CHECK_EQ(extents(graph, 1), "0-0");
  CHECK_EQ(extents(graph, 2), "0-0 2-2");
  CHECK_EQ(extents(graph, 3), "0-0");
  CHECK_EQ(extents(graph, 4), "0-2");
  CHECK_EQ(extents(graph, 5), "0-1");
}

TEST_CASE("a fork that the killed recorder did not get to write") {
  Written trace;
  trace.unit(1);
  trace.work(1, 2);
  trace.unit(2, {1, 2});
  trace.work(2, 3);
  const Rdg graph = trace.graph();
  CHECK_EQ(extents(graph, 1), "0-2");
  CHECK_EQ(extents(graph, 2), "0-0");
}

TEST_CASE("what nothing leads to is not reachable, and cannot be planned") {
  Written trace;
  const auto reachable = [](const Rdg& graph, UnitId unit) {
    std::string out;
    for (const auto& interval : graph.units.at(unit)) out += interval.reachable ? "y" : "n";
    return out;
  };
  trace.unit(1);
  trace.work(1);
  SUBCASE("behind a cut") {
    trace.receive(1, {{2, 50}});
    trace.interval(1);
    trace.work(1, 2);
    trace.interval(1);
    trace.work(1, 2);
    trace.interval(1);
    trace.image(1);
    trace.work(1);
    const Rdg graph = trace.graph();
    CHECK_EQ(reachable(graph, 1), "ynny");
    CHECK(plan(graph, 1, 0).plan);
    CHECK_FALSE(plan(graph, 1, 1).plan);
    CHECK_FALSE(plan(graph, 1, 2).plan);
    CHECK(plan(graph, 1, 3).plan);
  }
  SUBCASE("a child whose fork is missing, without an event of its own") {
    trace.unit(2, {1, 1});
    const Rdg graph = trace.graph();
    CHECK_EQ(reachable(graph, 2), "n");
    CHECK_FALSE(plan(graph, 2, 0).plan);
  }
  SUBCASE("a join whose image is missing") {
    SUBCASE("because the recorder was killed") {
      trace.join(1, 2);
      trace.interval(1);
      trace.work(1, 3);
      trace.interval(1);
      trace.work(1);
      const Rdg graph = trace.graph();
      CHECK_EQ(extents(graph, 1), "0-1 1-1 4-4");
      CHECK_EQ(reachable(graph, 1), "ynn");
    }
    SUBCASE("no: it is there") {
      trace.join(1, 2);
      trace.interval(1);
      trace.image(1);
      trace.work(1, 3);
      CHECK_EQ(reachable(trace.graph(), 1), "yy");
    }
    SUBCASE("no: a process stayed in its parent's unit") {
      trace.join(1, 0);
      trace.interval(1);
      trace.work(1, 3);
      CHECK_EQ(reachable(trace.graph(), 1), "yy");
    }
  }
  SUBCASE("a place where another thread had its turn") {
    trace.interval(1);
    trace.preempted(1, Preempted::turn);
    trace.work(1);
    const Rdg graph = trace.graph();
    CHECK_EQ(extents(graph, 1), "0-1 1-1");
    CHECK_EQ(reachable(graph, 1), "yn");
  }
  SUBCASE("but one where nobody had is passed") {
    trace.interval(1);
    trace.preempted(1, Preempted::checkpoint);
    trace.work(1);
    CHECK_EQ(reachable(trace.graph(), 1), "yy");
  }
}

TEST_CASE("a program whose image was not stored is not reachable, nor is what it started or sent") {
  Written trace;
  trace.unit(1, {}, false);
  const EventRef fork{1, 0};
  trace.work(1);
  const EventRef sent = trace.send(1);
  trace.interval(1);
  trace.work(1);
  trace.unit(2, fork);
  trace.work(2);
  trace.unit(3, {2, 0});
  trace.work(3);
  trace.interval(3, CheckpointKind::exec);
  trace.image(3);
  trace.work(3);
  trace.unit(4);
  trace.work(4);
  trace.receive(4, {sent});
  SUBCASE("because the recorder was killed") {
    const Rdg graph = trace.graph();
    CHECK_EQ(extents(graph, 1), "0-0 2-2");
    CHECK_EQ(extents(graph, 2), "0-0");
    CHECK_EQ(extents(graph, 3), "0-0 1-2");
    CHECK_EQ(extents(graph, 4), "0-1");
    for (const UnitId unit : {1, 2, 3}) CHECK_FALSE(plan(graph, unit, 0).plan);
    CHECK(plan(graph, 3, 1).plan);
    CHECK(plan(graph, 4, 0).plan);
  }
  SUBCASE("but a finished recording should have it") {
    const auto read = trace.finished();
    const DependenceGraph graph = Written::open_graph(*read);
    CHECK_EQ(extents(graph.rdg(), 1), "0-2 2-3");
    CHECK_EQ(extents(graph.rdg(), 4), "0-2");
    CHECK(plan(graph.rdg(), 2, 0).plan);
  }
}

TEST_CASE("an interval whose events were lost is none") {
  Written trace;
  trace.unit(1);
  trace.work(1, 2);
  trace.interval(1);
  trace.work(1, 2);
  trace.end_interval(1, 7);
  trace.interval(1);
  trace.image(1);
  trace.unit(2);
  const Rdg graph = trace.graph();
  CHECK_EQ(extents(graph, 1), "0-2 2-4");
  CHECK_EQ(graph.units.at(1)[1].cpu_ns, 7);
  CHECK_EQ(extents(graph, 2), "0-0");
}

TEST_CASE("of a finished trace no more is read than plans need") {
  Written trace;
  for (UnitId id = 1; id <= 4; ++id) trace.unit(id);
  const EventRef to_2 = trace.send(1);
  trace.receive(2, {to_2});
  trace.interval(2);
  trace.image(2);
  const uint64_t sent_at_ns = trace.at_ns(2);
  const EventRef to_3 = trace.send(2);
  trace.receive(2, {to_2});
  trace.receive(3, {to_3});
  trace.receive(4, {to_2});
  const auto finished = trace.finished();
  DependenceGraph graph = Written::open_graph(*finished);
  const auto read = [&](UnitId unit) {
    const auto found = graph.rdg().unlogged.find(unit);
    return found == graph.rdg().unlogged.end() ? 0 : found->second.size();
  };
  for (UnitId id = 1; id <= 4; ++id) CHECK_EQ(read(id), 0);

  const auto result = graph.plan(3, 0);
  REQUIRE(result);
  REQUIRE(result->plan);
  REQUIRE_EQ(result->plan->replay_set.size(), 2);  // unit 2 up to its send needs nothing of unit 1
  CHECK_EQ(result->plan->replay_set[0].unit, 3);
  CHECK_EQ(result->plan->replay_set[1].unit, 2);
  CHECK_EQ(result->plan->replay_set[1].start, 1);
  CHECK_EQ(result->plan->replay_set[1].requisite_event, to_3.event + 1);
  REQUIRE_EQ(read(3), 1);
  CHECK_EQ(graph.rdg().unlogged.at(3)[0].sender_at_ns, sent_at_ns);
  CHECK_EQ(read(2), 1);  // of its second interval
  CHECK_EQ(read(4), 0);

  // What is read later is inserted in its place.
  const auto earlier = graph.plan(2, 0);
  REQUIRE(earlier);
  REQUIRE(earlier->plan);
  CHECK_EQ(earlier->plan->replay_set.size(), 2);
  REQUIRE_EQ(read(2), 2);
  CHECK_EQ(graph.rdg().unlogged.at(2)[0].receiver.event, 0);
  CHECK_EQ(graph.rdg().unlogged.at(2)[1].receiver.event, 2);
  CHECK(graph.plan(2, 0)->plan);
  CHECK_EQ(read(2), 2);
}

TEST_CASE("times of sends are found in whatever order the messages were received") {
  Written trace;
  for (UnitId id = 1; id <= 3; ++id) trace.unit(id);
  constexpr size_t kMessages = 40;
  std::vector<EventRef> sent;
  std::map<EventRef, uint64_t> sent_at_ns;
  for (size_t i = 0; i < kMessages; ++i) {
    trace.work(1, 1 + static_cast<int>(i % 3));
    const uint64_t at_ns = trace.at_ns(1);
    sent.push_back(trace.send(1));
    sent_at_ns[sent.back()] = at_ns;
  }
  for (size_t i = 0; i < kMessages; ++i) trace.receive(2, {sent[i * 7 % kMessages]});
  for (size_t i = 0; i < kMessages; ++i) trace.receive(3, {sent[kMessages - 1 - i], sent[i]});
  const Rdg graph = trace.graph();
  REQUIRE_EQ(graph.unlogged.at(2).size(), kMessages);
  REQUIRE_EQ(graph.unlogged.at(3).size(), 2 * kMessages);
  for (const UnitId receiver : {2, 3}) {
    for (const auto& dependence : graph.unlogged.at(receiver)) {
      CHECK_EQ(dependence.sender_at_ns, sent_at_ns.at(dependence.sender));
    }
  }
}

TEST_CASE("a plan follows dependences through intervals that were not read yet") {
  Written trace;
  constexpr UnitId kChain = 20;
  for (UnitId id = 1; id <= kChain; ++id) trace.unit(id);
  EventRef last = trace.send(1);
  for (UnitId id = 2; id <= kChain; ++id) {
    trace.receive(id, {last});
    trace.work(id);
    last = trace.send(id);
    trace.work(id);
  }
  const auto finished = trace.finished();
  DependenceGraph graph = Written::open_graph(*finished);
  const auto result = graph.plan(kChain, 0);
  REQUIRE(result);
  REQUIRE(result->plan);
  REQUIRE_EQ(result->plan->replay_set.size(), kChain);
  for (const auto& planned : result->plan->replay_set) {
    CAPTURE(planned.unit);
    CHECK_EQ(planned.requisite_event, planned.unit == kChain ? 4 : planned.unit == 1 ? 1 : 3);
  }
}

TEST_CASE("an event that needs itself, or a later one of its unit, is no reason to go on for ever") {
  Written written;
  written.unit(1);
  written.receive(1, {{1, 0}});
  written.receive(1, {{1, 2}});
  written.send(1);
  written.end_interval(1, 1000);
  const auto trace = written.finished();
  auto graph = Written::open_graph(*trace);
  const auto planned = graph.plan(1, 0);
  REQUIRE(planned);
  const auto execution = read_execution(*trace);
  REQUIRE(execution);
  CHECK(execution->steps.size() <= 5);
}

TEST_CASE("a unit that begins with an image begins anew, as in a window") {
  Written written;
  written.bare_unit(1);
  written.interval(1);
  written.end_interval(1, 1000);
  const auto execution = read_execution(*written.finished());
  REQUIRE_MESSAGE(execution, execution.error().message);
  CHECK(execution->steps.front().what == Execution::What::program);
}

}  // namespace redrive::graph_test
