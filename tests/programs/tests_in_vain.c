// Waits for a byte in loops that test whether it is there and read the time, with each call that can test; in some, signals
// come. The other process computes meanwhile. What a test leaves behind is the same as without a recorder.
// images: 2
#define _GNU_SOURCE
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <time.h>

#include "test.h"

enum Kind { kPoll, kPpoll, kSelect, kPselect, kEpoll, kEpollPwait, kEpollPwait2, kKinds };
enum { kComputed = 12000000, kLongest_s = 60 };

static volatile sig_atomic_t signals;
static int queue;

static void on_signal(int signal) {
  (void)signal;
  signals++;
}

static struct timespec now(void) {
  struct timespec time;
  MUST(clock_gettime(CLOCK_MONOTONIC_COARSE, &time));
  return time;
}

static int test_poll(int end, int precise) {
  struct pollfd tested = {.fd = end, .events = POLLIN, .revents = 0x7777};
  const struct timespec none = {0, 0};
  const int found = precise ? ppoll(&tested, 1, &none, NULL) : poll(&tested, 1, 0);
  if (found >= 0) CHECK(tested.revents == (found ? POLLIN : 0));
  return found;
}

static int test_select(int end, int precise) {
  fd_set tested;
  FD_ZERO(&tested);
  FD_SET(end, &tested);
  struct timeval none = {0, 0};
  const struct timespec nothing = {0, 0};
  const int found = precise ? pselect(end + 1, &tested, NULL, NULL, &nothing, NULL) : select(end + 1, &tested, NULL, NULL, &none);
  CHECK(none.tv_sec == 0 && none.tv_usec == 0);
  if (found >= 0) CHECK(!!FD_ISSET(end, &tested) == found);
  return found;
}

static int test_epoll(enum Kind kind) {
  struct epoll_event event = {.events = 0, .data.u32 = 1};
  const struct timespec none = {0, 0};
  int found = 0;
  if (kind == kEpoll) found = epoll_wait(queue, &event, 1, 0);
  if (kind == kEpollPwait) found = epoll_pwait(queue, &event, 1, 0, NULL);
  if (kind == kEpollPwait2) found = (int)syscall(SYS_epoll_pwait2, queue, &event, 1, &none, NULL, 8);
  CHECK(event.data.u32 == (found > 0 ? 77 : 1));
  return found;
}

static int test(enum Kind kind, int end) {
  switch (kind) {
    case kPoll:
    case kPpoll:
      return test_poll(end, kind == kPpoll);
    case kSelect:
    case kPselect:
      return test_select(end, kind == kPselect);
    default:
      return test_epoll(kind);
  }
}

static void wait_for_byte(enum Kind kind, int end) {
  const time_t limit = now().tv_sec + kLongest_s;
  int found = 0;
  while (found <= 0) {
    found = test(kind, end);
    CHECK(found >= 0 || errno == EINTR);
    CHECK(now().tv_sec < limit);
  }
  char byte = 0;
  CHECK(found == 1 && read(end, &byte, 1) == 1 && byte == 'a' + (char)kind);
}

// The second time only when the other end is ready for it: otherwise there might be nothing to wait for.
static void compute_and_send(int end, int ready) {
  uint64_t state = 88172645463325252u;
  for (int kind = 0; kind < 2 * kKinds; kind++) {
    char go;
    if (kind == kKinds) CHECK(read(ready, &go, 1) == 1);
    for (int i = 0; i < kComputed; i++) state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const char byte = (char)('a' + kind % kKinds);
    CHECK(state != 0 && write(end, &byte, 1) == 1);
  }
}

int main(void) {
  int ends[2], ready[2];
  MUST(pipe(ends));
  MUST(pipe(ready));
  const pid_t child = MUST(fork());
  if (child == 0) {
    compute_and_send(ends[1], ready[0]);
    return 0;
  }
  struct epoll_event wanted = {.events = EPOLLIN, .data.u32 = 77};
  queue = MUST(epoll_create1(0));
  MUST(epoll_ctl(queue, EPOLL_CTL_ADD, ends[0], &wanted));
  for (int kind = 0; kind < kKinds; kind++) wait_for_byte((enum Kind)kind, ends[0]);
  struct sigaction action = {.sa_handler = on_signal};
  MUST(sigaction(SIGALRM, &action, NULL));
  const struct itimerval often = {{0, 3000}, {0, 3000}};
  MUST(setitimer(ITIMER_REAL, &often, NULL));
  CHECK(write(ready[1], "", 1) == 1);
  for (int kind = 0; kind < kKinds; kind++) wait_for_byte((enum Kind)kind, ends[0]);
  const struct itimerval never = {{0, 0}, {0, 0}};
  MUST(setitimer(ITIMER_REAL, &never, NULL));
  int status = 0;
  while (waitpid(child, &status, 0) < 0) CHECK(errno == EINTR);
  CHECK(status == 0 && signals > 0);
  puts("ok");
  return 0;
}
