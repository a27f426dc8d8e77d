// Threads and processes that share memory sleep in calls that a recorder may serve without a stop, while another one of them continues:
// what each finds when it wakes up, how long it slept, and what signals, ends of other threads and a fork do meanwhile.
// images: 1
#include "test.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>

enum { kRounds = 60, kSleepers = 5 };

static double now(void) {
  struct timespec time;
  MUST(clock_gettime(CLOCK_MONOTONIC, &time));
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static long futex(uint32_t* at, int operation, uint32_t value) {
  return syscall(SYS_futex, at, operation, value, NULL, NULL, 0);
}

static int requests[kSleepers][2], answers[kSleepers][2];
static uint32_t word;
static volatile sig_atomic_t signals;
static __thread volatile sig_atomic_t mine;

static void handler(int signal) {
  (void)signal;
  signals++;
  mine++;
}

static void nap(long ns) {
  const double start = now();
  const struct timespec time = {0, ns};
  CHECK(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, NULL) == 0);
  CHECK(now() - start >= 1e-9 * (double)ns);
}

// Each thread has a different way to sleep until there is something to read.
static void wait_for_request(int which, int fd) {
  struct pollfd one = {fd, POLLIN, 0x40};
  struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
  switch (which) {
    case 0:
      CHECK(poll(&one, 1, -1) == 1 && one.revents == POLLIN);
      return;
    case 1: {
      const int epoll = MUST(epoll_create1(0));
      MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
      event.data.fd = -1;
      CHECK(epoll_wait(epoll, &event, 1, 30000) == 1 && event.data.fd == fd);
      MUST(close(epoll));
      return;
    }
    case 2:
      while (poll(&one, 1, 1) == 0) nap(100000);
      CHECK(one.revents == POLLIN);
      return;
    default:
      return;  // in read(2)
  }
}

static void* sleeper(void* argument) {
  const int which = (int)(intptr_t)argument;
  double live[4] = {1, 2, 3, 4};  // in registers, if the compiler keeps them there
  for (int round = 0; round < kRounds; round++) {
    int value = -1;
    wait_for_request(which, requests[which][0]);
    if (which == 4) {
      for (uint32_t seen; (seen = __atomic_load_n(&word, __ATOMIC_ACQUIRE)) <= (uint32_t)round;) futex(&word, FUTEX_WAIT, seen);
    }
    CHECK(read(requests[which][0], &value, sizeof value) == sizeof value && value == round * 10 + which);
    for (int i = 0; i < 4; i++) live[i] = live[i] * 1.5 + value;
    value++;
    CHECK(write(answers[which][1], &value, sizeof value) == sizeof value);
  }
  double expected[4] = {1, 2, 3, 4};
  for (int round = 0; round < kRounds; round++) {
    for (int i = 0; i < 4; i++) expected[i] = expected[i] * 1.5 + round * 10 + which;
  }
  CHECK(memcmp(live, expected, sizeof live) == 0);
  return NULL;
}

static void conversation(void) {
  pthread_t threads[kSleepers];
  for (int i = 0; i < kSleepers; i++) {
    MUST(pipe(requests[i]));
    MUST(pipe(answers[i]));
    MUST0(pthread_create(&threads[i], NULL, sleeper, (void*)(intptr_t)i));
  }
  for (int round = 0; round < kRounds; round++) {
    nap(200000 * (round % 3));
    for (int i = 0; i < kSleepers; i++) {
      const int value = round * 10 + i;
      if (i == 4) {
        __atomic_fetch_add(&word, 1, __ATOMIC_RELEASE);
        futex(&word, FUTEX_WAKE, 1);
      }
      CHECK(write(requests[i][1], &value, sizeof value) == sizeof value);
    }
    for (int i = kSleepers; i-- > 0;) {
      int value = -1;
      CHECK(read(answers[i][0], &value, sizeof value) == sizeof value && value == round * 10 + i + 1);
    }
  }
  for (int i = 0; i < kSleepers; i++) {
    MUST0(pthread_join(threads[i], NULL));
    for (int end = 0; end < 2; end++) {
      MUST(close(requests[i][end]));
      MUST(close(answers[i][end]));
    }
  }
}

// A sleeper gets signals: with a handler that ends the call, with one that restarts it, and one that is ignored.
static int told[2];
static volatile sig_atomic_t interrupted_waits;
static void* target(void* argument) {
  (void)argument;
  char byte;
  const int epoll = MUST(epoll_create1(0));
  struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7};
  MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, told[0], &event));
  int interrupted = 0;
  while (epoll_wait(epoll, &event, 1, -1) == -1) {
    CHECK(errno == EINTR && mine > interrupted);  // not by an ignored signal
    interrupted = mine;
    interrupted_waits++;
  }
  CHECK(event.data.u64 == 7 && interrupted >= 1);
  CHECK(read(told[0], &byte, 1) == 1 && byte == 'a');
  CHECK(read(told[0], &byte, 1) == 1 && byte == 'b');  // it continues after its handler
  MUST(close(epoll));
  return NULL;
}

static void hit(void) {
  struct sigaction action = {.sa_handler = handler};
  MUST(sigaction(SIGUSR1, &action, NULL));
  action.sa_flags = SA_RESTART;
  MUST(sigaction(SIGUSR2, &action, NULL));
  CHECK(signal(SIGWINCH, SIG_IGN) != SIG_ERR);
  MUST(pipe(told));
  pthread_t thread;
  MUST0(pthread_create(&thread, NULL, target, NULL));
  while (interrupted_waits < 4) {
    nap(2000000);
    MUST0(pthread_kill(thread, SIGWINCH));
    nap(500000);
    MUST0(pthread_kill(thread, SIGUSR1));
  }
  CHECK(write(told[1], "a", 1) == 1);
  for (int i = 0; i < 5; i++) {
    nap(2000000);
    MUST0(pthread_kill(thread, SIGUSR2));
    MUST0(pthread_kill(thread, SIGWINCH));
  }
  nap(1000000);
  CHECK(write(told[1], "b", 1) == 1);
  MUST0(pthread_join(thread, NULL));
  CHECK(signals >= 2);
}

// A long sleep ends when it should, however often others wake up meanwhile.
static void* long_sleep(void* argument) {
  (void)argument;
  const double start = now();
  struct timespec time = {0, 120000000};
  CHECK(nanosleep(&time, NULL) == 0);
  const double slept = now() - start;
  CHECK(slept >= 0.12);
  return NULL;
}

// Processes that share memory: one sleeps, and one is killed while it sleeps.
static void processes(void) {
  uint32_t* const shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  const pid_t child = MUST(fork());
  if (child == 0) {
    for (uint32_t i = 0; i < kRounds; i++) {
      while (__atomic_load_n(&shared[0], __ATOMIC_ACQUIRE) == i) futex(&shared[0], FUTEX_WAIT, i);
      __atomic_fetch_add(&shared[1], 1, __ATOMIC_RELEASE);
      futex(&shared[1], FUTEX_WAKE, 1);
    }
    _exit(5);
  }
  const pid_t sleeps = MUST(fork());
  if (sleeps == 0) {
    poll(NULL, 0, -1);
    _exit(1);
  }
  for (uint32_t i = 0; i < kRounds; i++) {
    if (i % 10 == 0) nap(1000000);
    __atomic_fetch_add(&shared[0], 1, __ATOMIC_RELEASE);
    futex(&shared[0], FUTEX_WAKE, 1);
    while (__atomic_load_n(&shared[1], __ATOMIC_ACQUIRE) == i) futex(&shared[1], FUTEX_WAIT, i);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5);
  MUST(kill(sleeps, SIGTERM));
  CHECK(waitpid(sleeps, &status, 0) == sleeps && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  MUST(munmap(shared, 4096));
}

static void* never_ends(void* argument) {
  poll(NULL, 0, -1);
  return argument;
}

int main(void) {
  pthread_t sleeps, stays;
  MUST0(pthread_create(&sleeps, NULL, long_sleep, NULL));
  MUST0(pthread_create(&stays, NULL, never_ends, NULL));
  conversation();
  hit();
  MUST0(pthread_join(sleeps, NULL));
  const pid_t child = MUST(fork());  // sleepers stay with the parent
  if (child == 0) {
    conversation();
    _exit(3);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
  processes();
  // A computation, so that checkpoints find a thread asleep.
  volatile double sum = 0;
  for (int i = 0; i < 60000000; i++) {
    sum = sum + 1.0 / (1 + i);
    if (i % 100000 == 0) getppid();
  }
  CHECK(sum > 10);
  return ok("%d", kSleepers);  // this ends the remaining one
}
