// The bully algorithm (Garcia-Molina): of the nodes that are alive, the one with the highest number must lead.
// usage: bully [NODES [CRASHES [TIMEOUT_MS]]]     DR-MCAPI's: about `bully 3 2` to `bully 12 1`, messages of 4 bytes
// Node 0 is an observer. Again and again it kills the leader (each third time the second as well) without notice, and makes a node look
// for the leader; then it starts the killed ones again. Nodes notice by timeouts, so that what is sent differs
// from run to run. Checked: after each crash and each start all nodes that are alive report the highest of them as
// leader, and at the end they still know it.
#include <time.h>

#include "nodes.h"

enum Kind { kElection, kAnswer, kLeader, kPing, kPong, kLook, kReport, kStop };
enum State { kIdle, kElecting, kAwaitingLeader, kAwaitingPong };
enum { kObserver = 0, kPatience_ms = 60000 };

struct Message {
  uint8_t kind, from, to, number;  // kReport: the leader's number; otherwise a count
};

static int timeout_ms;

static int64_t now_ms(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (int64_t)at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

static void tell(int node, enum Kind kind) {
  static uint8_t count;
  const struct Message message = {(uint8_t)kind, (uint8_t)network.self, (uint8_t)node, count++};
  send_to(node, &message, sizeof message);
}

struct Member {
  enum State state;
  int64_t deadline_ms;  // unless idle
  int leader;
};

static void await(struct Member* member, enum State state, int timeouts) {
  member->state = state;
  member->deadline_ms = now_ms() + timeouts * timeout_ms;
}

static void accept_leader(struct Member* member, int leader) {
  const struct Message report = {kReport, (uint8_t)network.self, kObserver, (uint8_t)leader};
  member->leader = leader;
  member->state = kIdle;
  send_to(kObserver, &report, sizeof report);
}

static void become_leader(struct Member* member) {
  for (int lower = 1; lower < network.self; lower++) tell(lower, kLeader);
  accept_leader(member, network.self);
}

static void start_election(struct Member* member) {
  if (network.self == network.count - 1) {
    become_leader(member);
    return;
  }
  for (int higher = network.self + 1; higher < network.count; higher++) tell(higher, kElection);
  await(member, kElecting, 1);
}

static void look_for_leader(struct Member* member) {
  if (member->state != kIdle || member->leader == network.self) return;
  tell(member->leader, kPing);
  await(member, kAwaitingPong, 1);
}

static int takes_part_in_election(const struct Member* member) {
  return member->state == kElecting || member->state == kAwaitingLeader;
}

static void act_on(struct Member* member, const struct Message* message) {
  switch (message->kind) {
    case kElection:
      tell(message->from, kAnswer);
      if (!takes_part_in_election(member)) start_election(member);
      break;
    case kAnswer:
      if (member->state == kElecting) await(member, kAwaitingLeader, 4);
      break;
    case kLeader:
      if (message->from > network.self)
        accept_leader(member, message->from);
      else if (!takes_part_in_election(member))
        start_election(member);
      break;
    case kPing:
      if (member->leader == network.self) tell(message->from, kPong);
      break;
    case kPong:
      if (member->state == kAwaitingPong) member->state = kIdle;
      break;
    case kLook:
      look_for_leader(member);
      break;
  }
}

static void act_on_timeout(struct Member* member) {
  if (member->state == kElecting)
    become_leader(member);
  else
    start_election(member);
}

// The main loop of a node, until it is told to stop. Exits with the number of its leader.
static void take_part(void) {
  struct Member member = {kIdle, 0, 0};
  struct Message message;
  while (arrives_within(0)) receive(&message, sizeof message);  // what was sent to a dead node is lost
  for (start_election(&member);;) {
    const int64_t left_ms = member.deadline_ms - now_ms();
    if (!arrives_within(member.state == kIdle ? -1 : left_ms > 0 ? (int)left_ms : 0)) {
      act_on_timeout(&member);
      continue;
    }
    receive(&message, sizeof message);
    if (message.kind == kStop) _exit(member.leader);
    act_on(&member, &message);
  }
}

static int is_alive(int node) { return network.processes[node] != 0; }

static int highest_alive(void) {
  int node = network.count - 1;
  while (!is_alive(node)) node--;
  return node;
}

static int all_agree(const int* leaders) {
  for (int node = 1; node < network.count; node++) {
    if (is_alive(node) && leaders[node] != highest_alive()) return 0;
  }
  return 1;
}

static void await_agreement(int* leaders) {
  const int64_t deadline_ms = now_ms() + kPatience_ms;
  while (!all_agree(leaders)) {
    struct Message report;
    const int64_t left_ms = deadline_ms - now_ms();
    if (left_ms <= 0 || !arrives_within((int)left_ms)) {
      printf("WRONG node %d does not lead\n", highest_alive());
      exit(1);
    }
    receive(&report, sizeof report);
    leaders[report.from] = report.number;
  }
}

// The highest is started first, because it can lead at once.
static void start_dead_nodes(int* leaders) {
  for (int node = network.count - 1; node > 0; node--) {
    leaders[node] = is_alive(node) ? leaders[node] : 0;
    if (!is_alive(node) && start_node(node)) take_part();
  }
}

static void crash(int node) {
  kill(network.processes[node], SIGKILL);
  if (waitpid(network.processes[node], NULL, 0) < 0) die("waitpid");
  network.processes[node] = 0;
}

static int stop_nodes(void) {
  int good = 1, status;
  for (int node = 1; node < network.count; node++) tell(node, kStop);
  for (int node = 1; node < network.count; node++) {
    if (waitpid(network.processes[node], &status, 0) < 0) die("waitpid");
    good = good && WIFEXITED(status) && WEXITSTATUS(status) == network.count - 1;
  }
  return good;
}

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 4, crashes = argc > 2 ? atoi(argv[2]) : 3;
  int leaders[kMaxNodes] = {0};  // as reported
  timeout_ms = argc > 3 ? atoi(argv[3]) : 100;
  if (count < 3 || count >= kMaxNodes || crashes < 0 || timeout_ms < 1) {
    fprintf(stderr, "usage: bully [NODES [CRASHES [TIMEOUT_MS]]]     NODES: at least 3\n");
    return 2;
  }
  make_inboxes(count + 1);
  start_dead_nodes(leaders);
  await_agreement(leaders);
  for (int i = 0; i < crashes; i++) {
    crash(highest_alive());
    if (i % 3 == 2) crash(highest_alive());
    tell(1 + i % highest_alive(), kLook);
    await_agreement(leaders);
    start_dead_nodes(leaders);
    await_agreement(leaders);
  }
  const int good = stop_nodes();
  printf("%s %d nodes, %d crashes\n", good ? "ok" : "WRONG", count, crashes);
  return good ? 0 : 1;
}
