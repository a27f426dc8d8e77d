// A network of nodes, each a process with an inbox that all may send to: the connectionless endpoints of DR-MCAPI's
// programs. A message arrives whole; those of one sender arrive in order, those of several in whatever order they were
// sent. An inbox holds some 200 KB, and a sender to a full one waits: no node may keep sending without receiving.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kMaxNodes = 64 };

static struct {
  int count, self;
  int receiving[kMaxNodes], sending[kMaxNodes];  // the ends of each inbox
  pid_t processes[kMaxNodes];
} network;

static inline void die(const char* what) {
  perror(what);
  exit(1);
}

static inline void make_inboxes(int count) {
  network.count = count;
  for (int node = 0; node < count; node++) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends)) die("socketpair");
    network.receiving[node] = ends[0];
    network.sending[node] = ends[1];
  }
}

// Returns whether this is the new node. It ends when node 0 does.
static inline int start_node(int node) {
  const pid_t process = fork();
  if (process < 0) die("fork");
  if (process > 0) {
    network.processes[node] = process;
    return 0;
  }
  network.self = node;
  if (prctl(PR_SET_PDEATHSIG, SIGKILL)) die("prctl");
  return 1;
}

// Returns in every node; the caller is node 0.
static inline void start_nodes(int count) {
  make_inboxes(count);
  for (int node = 1; node < count; node++) {
    if (start_node(node)) return;
  }
}

static inline void send_to(int node, const void* message, size_t size) {
  if (send(network.sending[node], message, size, MSG_NOSIGNAL) != (ssize_t)size) die("send");
}

// Like send_to, but does not wait while others may wait for this node: returns 0, and has sent nothing, if the other
// inbox is full and something is in this node's.
static inline int send_unless_stuck(int node, const void* message, size_t size) {
  while (send(network.sending[node], message, size, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)size) {
    struct pollfd either[2] = {{network.receiving[network.self], POLLIN, 0}, {network.sending[node], POLLOUT, 0}};
    if (errno != EAGAIN) die("send");
    if (poll(either, 2, -1) < 0) die("poll");
    if (either[0].revents) return 0;
  }
  return 1;
}

static inline void send_to_others(const void* message, size_t size) {
  for (int step = 1; step < network.count; step++) send_to((network.self + step) % network.count, message, size);
}

// Waits for a message. Returns its size.
static inline size_t receive(void* message, size_t room) {
  const ssize_t size = recv(network.receiving[network.self], message, room, 0);
  if (size <= 0) die("recv");
  return (size_t)size;
}

// Whether a message comes within the time.
static inline int arrives_within(int timeout_ms) {
  struct pollfd inbox = {network.receiving[network.self], POLLIN, 0};
  const int ready = poll(&inbox, 1, timeout_ms);
  if (ready < 0) die("poll");
  return ready;
}

// All nodes except 0 end here. In node 0, returns when they have ended: whether all of them were `good`.
static inline int end_nodes(int good) {
  if (network.self > 0) _exit(good ? 0 : 1);
  for (int node = 1; node < network.count; node++) {
    int status;
    if (waitpid(network.processes[node], &status, 0) != network.processes[node] || status != 0) good = 0;
  }
  return good;
}

// A number in [0, 1) that depends only on the arguments.
static inline double random_at(uint64_t a, uint64_t b) {
  uint64_t x = (a * 0x9e3779b97f4a7c15ULL) ^ (b + 0x632be59bd9b4e019ULL) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 31) * 0x94d049bb133111ebULL;
  return (double)((x ^ x >> 29) >> 11) / (double)(1ULL << 53);
}
