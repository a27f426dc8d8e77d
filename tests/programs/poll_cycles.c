// Unsuccessful tests that are made in turn, again and again, over checkpoints: a cycle may end anywhere in a round.
// images: 2
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "test.h"

enum { kRounds = 20000 };
static volatile long calls;  // in memory: the registers of all calls are the same
static volatile sig_atomic_t signals;
static int ends[2], queues[3], sockets[2];
static char byte;

static void on_signal(int signal) {
  (void)signal;
  signals++;
}

// The nth call of a cycle that contains all kinds; none of them finds anything.
static void test_once(long n) {
  struct epoll_event found;
  struct pollfd end = {.fd = ends[0], .events = POLLIN};
  switch (n) {
    case 0:
    case 1:
    case 2:
      if (epoll_wait(queues[n], &found, 1, 0) != 0) _exit(97);
      break;
    case 3:
      if (recv(sockets[0], &byte, 1, MSG_DONTWAIT) != -1 || errno != EAGAIN) _exit(96);
      break;
    case 4:
      if (poll(&end, 1, 0) != 0) _exit(95);
      break;
    default:
      if (sched_yield() != 0) _exit(94);
  }
}

// Makes calls `first` to `last` of a cycle in turn, `count` in total.
static void test_in_turn(long first, long last, long count) {
  for (calls = 0; calls < count; calls++) test_once(first + calls % (last - first + 1));
}

static void* test_beside(void* unused) {
  test_in_turn(3, 5, 3000);
  return unused;
}

int main(void) {
  MUST(pipe(ends));
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
  for (int i = 0; i < 3; i++) {
    struct epoll_event wanted = {.events = EPOLLIN};
    queues[i] = MUST(epoll_create1(0));
    MUST(epoll_ctl(queues[i], EPOLL_CTL_ADD, ends[0], &wanted));
  }
  test_in_turn(0, 1, 2 * kRounds);      // as libraries that poll two descriptors do
  test_in_turn(0, 1, 2 * kRounds + 1);  // continues the cycle in the middle of a round, and ends there
  test_in_turn(3, 5, 3 * kRounds + 2);
  test_in_turn(0, 5, 6 * kRounds + 3);
  for (long i = 0; i < 2000; i++) test_in_turn(0, 1 + i % 5, 4 + i % 11);  // short cycles, one after the other

  // A call that finds something, the same call that does not, and one that is not a test.
  for (long i = 0; i < 500; i++) {
    test_in_turn(3, 4, 20 + i % 3);
    MUST(write(sockets[1], "x", 1));
    CHECK(recv(sockets[0], &byte, 1, MSG_DONTWAIT) == 1);
    test_in_turn(3, 4, 7);
  }

  // A signal, in the middle of the cycle.
  struct sigaction action = {.sa_handler = on_signal};
  MUST(sigaction(SIGALRM, &action, NULL));
  const struct itimerval often = {{0, 3000}, {0, 3000}}, never = {{0, 0}, {0, 0}};
  MUST(setitimer(ITIMER_REAL, &often, NULL));
  for (long i = 0; i < 100 || signals < 5; i++) {
    for (calls = 0; calls < 2000; calls++) test_once(calls % 2 ? 1 : 0);
  }
  MUST(setitimer(ITIMER_REAL, &never, NULL));

  // Another thread of the process that does the same.
  pthread_t beside;
  for (int i = 0; i < 3; i++) {
    MUST0(pthread_create(&beside, NULL, test_beside, NULL));
    for (long n = 0; n < 3000; n++) test_once(n % 2);
    MUST0(pthread_join(beside, NULL));
  }

  MUST(write(ends[1], "x", 1));
  struct epoll_event found;
  CHECK(epoll_wait(queues[0], &found, 1, 0) == 1);
  return ok("%d rounds", kRounds);
}
