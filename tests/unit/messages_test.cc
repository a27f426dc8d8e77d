// Which receives are messages, and what the policy makes of them. The pipe and the memory are this process's own.
#include "supervisor/record/messages/messages.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "logstore/memory_storage.h"
#include "tests/unit/fake_tracer.h"
#include "tests/unit/unit_test.h"

namespace redrive::messages_test {

namespace {

constexpr UnitId kSender = 1, kReceiver = 2;

// Decides what a test says, and writes down what it is asked.
class TestPolicy : public Policy {
 public:
  void on_checkpoint(uint32_t unit, uint64_t ended_ns) override { add("checkpoint", unit, ended_ns); }
  Tag on_send(uint32_t unit, uint64_t at_ns, uint64_t bytes) override {
    add("send", unit, bytes);
    return Tag{at_ns + 1};
  }
  Decision on_receive(uint32_t unit, uint64_t /*at_ns*/, const Tag& tag, uint64_t bytes) override {
    add("receive", unit, bytes);
    received = tag;
    return decision;
  }
  void on_kept(uint32_t unit, const Tag& tag) override { add("kept", unit, tag.critical_path_ns); }
  void on_end(uint32_t unit, uint64_t at_ns) override { add("end", unit, at_ns); }
  std::vector<Settled> on_settle() override { return std::exchange(settled, {}); }

  Decision decision;
  Tag received;
  std::vector<Settled> settled;
  std::vector<std::string> asked;

 private:
  void add(const char* what, uint32_t unit, uint64_t number) {
    asked.push_back(std::string(what) + " " + std::to_string(unit) + " " + std::to_string(number));
  }
};

struct Recording {
  Recording() {
    REQUIRE_EQ(pipe(pipe_), 0);
    auto opened = Memory::open(getpid());
    REQUIRE(opened);
    memory = std::move(*opened);
    pidfd = Fd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
    tracer.cpu_ns_of[1] = 0;
    clock.add(1);
    clock.begin();
  }
  ~Recording() {
    for (const int end : pipe_) ::close(end);
  }

  // Writes into the pipe, as far as redrive sees it.
  Event send(const std::string& text) {
    const std::array<uint64_t, 6> args{static_cast<uint64_t>(pipe_[1]), reinterpret_cast<uint64_t>(text.data()),
                                       text.size()};
    const SyscallRow& row = *find_row(SYS_write, args);
    std::vector<Span> inputs_of;
    inputs(row, args, memory, inputs_of);
    Event event;
    Sending sending;
    messages.begin_send({row, args, memory, table, pidfd.get(), nullptr}, {kSender, 10, clock}, inputs_of, sending,
                        event);
    messages.end_send(sending, static_cast<int64_t>(text.size()));
    return event;
  }
  // Has read this from there.
  Event receive(const std::string& text) {
    const std::array<uint64_t, 6> args{static_cast<uint64_t>(pipe_[0]), 0, text.size()};
    Event event;
    event.writes.push_back({0, text.size(), MemoryWrite::Kind::message, {text.begin(), text.end()}});
    received = messages.receive({*find_row(SYS_read, args), args, memory, table, pidfd.get(), nullptr},
                                {kReceiver, 20, clock}, static_cast<int64_t>(text.size()), event);
    return event;
  }
  void close(int fd) {
    const std::array<uint64_t, 6> args{static_cast<uint64_t>(fd)};
    Messages::forget_closed({*find_row(SYS_close, args), args, memory, table, pidfd.get(), nullptr});
  }

  int pipe_[2] = {-1, -1};
  Memory memory;
  Fd pidfd;
  FdCache table;
  FakeTracer tracer;
  IntervalClock clock{tracer};
  MemoryStorage storage;
  std::unique_ptr<TraceWriter> writer = TraceWriter::create("/t", Settings{}, storage).value();
  TestPolicy policy;
  Messages messages{*writer, policy};
  Messages::Received received;
};

}  // namespace

TEST_CASE("what was sent is a message, and its payload is kept if the policy says so") {
  Recording recording;
  const Event sent = recording.send("hello world");
  REQUIRE(sent.send);
  CHECK_EQ(sent.send->length, 11);
  SUBCASE("kept") {
    recording.policy.decision.keep = Keep::keep;
    const Event event = recording.receive("hello");
    REQUIRE(event.receive);
    CHECK(event.receive->logged);
    CHECK_EQ(event.writes[0].data.size(), 5);
    CHECK_FALSE(event.writes[0].from_message());
  }
  SUBCASE("dropped") {
    recording.policy.decision.keep = Keep::drop;
    const Event event = recording.receive("hello");
    REQUIRE(event.receive);
    CHECK_FALSE(event.receive->logged);
    CHECK(event.writes[0].data.empty());
    CHECK_EQ(event.writes[0].length, 5);
    CHECK(event.writes[0].from_message());
    REQUIRE_EQ(event.receive->parts.size(), 1);
    CHECK((event.receive->parts[0].sender == EventRef{kSender, 10}));
    CHECK_EQ(event.receive->arrival, 1);
    const Event rest = recording.receive(" world");
    REQUIRE(rest.receive);
    CHECK_EQ(rest.receive->parts[0].offset, 5);
    CHECK_EQ(rest.receive->arrival, 2);
  }
  CHECK(recording.received.message);
  CHECK_FALSE(recording.received.checkpoint_wanted);
  CHECK_EQ(recording.policy.received.critical_path_ns, 1);
}

TEST_CASE("what no unit has sent is input, and logged") {
  Recording recording;
  const Event event = recording.receive("hello");
  CHECK_FALSE(event.receive);
  CHECK_FALSE(recording.received.message);
  CHECK_EQ(event.writes[0].data.size(), 5);
  CHECK_FALSE(event.writes[0].from_message());
  recording.send("hello");
  CHECK_FALSE(recording.receive("other").receive);
  CHECK_EQ(recording.policy.asked, std::vector<std::string>{"send 1 5"});
}

TEST_CASE("a checkpoint that was to come before a receive follows it") {
  Recording recording;
  recording.send("hello");
  recording.policy.decision = {Keep::keep, true, 0};
  CHECK(recording.receive("hello").receive);
  CHECK(recording.received.checkpoint_wanted);
  CHECK_EQ(recording.policy.asked.back(), "kept 2 1");
}

TEST_CASE("payloads that are decided about later are held until then") {
  Recording recording;
  recording.send("hello");
  recording.policy.decision = {Keep::later, false, 3};
  const Event event = recording.receive("hello");
  REQUIRE(event.receive);
  CHECK_FALSE(event.receive->logged);
  CHECK(event.writes[0].data.empty());
  recording.policy.settled = {{3, true}};
  recording.messages.begin_interval(kReceiver, 5);
  CHECK(recording.policy.settled.empty());
  recording.messages.end_unit(kReceiver, 6);
  const std::vector<std::string> last(recording.policy.asked.end() - 2, recording.policy.asked.end());
  CHECK_EQ(last, std::vector<std::string>{"checkpoint 2 5", "end 2 6"});
}

TEST_CASE("what is behind a descriptor is remembered until it is closed") {
  Recording recording;
  recording.send("hello");
  const int end = recording.pipe_[0];
  CHECK(recording.receive("he").receive);
  CHECK(recording.table.known.find(end));
  const int file = open("/dev/zero", O_RDONLY);
  REQUIRE(dup2(file, end) == end);
  close(file);
  recording.close(end);
  CHECK_FALSE(recording.table.known.find(end));
  CHECK_FALSE(recording.receive("llo").receive);
}

TEST_CASE("the ends of a connection that was made by a call that stopped are known when they have ended it") {
  Recording recording;
  const Fd listener(socket(AF_INET, SOCK_STREAM, 0)), connected(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(bind(listener.get(), at, size) == 0);
  REQUIRE(listen(listener.get(), 1) == 0);
  REQUIRE(getsockname(listener.get(), at, &size) == 0);
  REQUIRE(connect(connected.get(), at, size) == 0);
  const Fd accepted(accept(listener.get(), nullptr, nullptr));
  REQUIRE(accepted);
  const auto call = [&](int64_t number, const Fd& fd, const auto& then) {
    const std::array<uint64_t, 6> args{static_cast<uint64_t>(fd.get())};
    return then(Messages::Call{*find_row(number, args), args, recording.memory, recording.table, recording.pidfd.get(),
                               nullptr});
  };
  call(SYS_accept, listener, [&](const auto& its) { recording.messages.note_connection(its, accepted.get()); });
  char byte = 0;
  for (const Fd* const end : {&connected, &accepted}) shutdown(end->get(), SHUT_WR);
  for (const Fd* const end : {&connected, &accepted}) REQUIRE(read(end->get(), &byte, 1) == 0);
  REQUIRE(getpeername(accepted.get(), at, &size) == -1);
  const auto ask = [&](const auto& its) { return recording.messages.endpoint(its, 0); };
  const Endpoint* const end = call(SYS_read, accepted, ask);
  REQUIRE(end);
  CHECK(end->kind == Endpoint::Kind::stream);
  CHECK_FALSE(call(SYS_read, connected, ask));  // nobody has asked in time
}

TEST_CASE("a birth is a message") {
  Recording recording;
  recording.policy.decision.keep = Keep::drop;
  CHECK_FALSE(recording.messages.keeps_birth(kSender, 7, kReceiver));
  CHECK_EQ(recording.policy.received.critical_path_ns, 8);
  recording.policy.decision.keep = Keep::later;
  CHECK(recording.messages.keeps_birth(kSender, 7, kReceiver));
  recording.policy.asked.clear();
  recording.policy.decision = {Keep::keep, true, 0};
  CHECK(recording.messages.keeps_birth(kSender, 7, kReceiver));
  CHECK_EQ(recording.policy.asked,
           std::vector<std::string>{"send 1 0", "receive 2 0", "checkpoint 2 0", "receive 2 0"});
}

}  // namespace redrive::messages_test
