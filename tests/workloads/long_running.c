// A process that somebody else looks at while it runs: many threads, each of which makes calls that must not fail and
// looks at what must not change, whatever a tracer does meanwhile. It ends when the file `end` exists, and prints "ok".
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

static atomic_int ending, failures;
static atomic_long rounds[16], alarms;

#define EXPECT(what)                                                                     \
  do {                                                                                   \
    if (!(what)) {                                                                       \
      printf("line %d: %s, %s\n", __LINE__, #what, strerror(errno)), fflush(stdout);     \
      atomic_fetch_add(&failures, 1);                                                    \
    }                                                                                    \
  } while (0)

static void block_all(void) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
}

static void* epolls(void* own) {
  block_all();
  const int epoll = epoll_create1(0), event = eventfd(0, 0);
  struct epoll_event wanted = {.events = EPOLLIN}, found;
  EXPECT(epoll_ctl(epoll, EPOLL_CTL_ADD, event, &wanted) == 0);
  for (; !ending; ++*(atomic_long*)own) EXPECT(epoll_wait(epoll, &found, 1, 100) == 0);
  return NULL;
}

static void* polls(void* own) {
  block_all();
  int ends[2];
  EXPECT(pipe(ends) == 0);
  struct pollfd wanted = {ends[0], POLLIN, 0};
  for (; !ending; ++*(atomic_long*)own) EXPECT(poll(&wanted, 1, 70) == 0);
  return NULL;
}

static void* sleeps(void* own) {
  block_all();
  for (; !ending; ++*(atomic_long*)own) {
    const struct timespec some = {0, 30000000};
    EXPECT(nanosleep(&some, NULL) == 0);
    EXPECT(clock_nanosleep(CLOCK_MONOTONIC, 0, &some, NULL) == 0);
  }
  return NULL;
}

static void* awaits_signals(void* own) {
  block_all();
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR2);
  for (; !ending; ++*(atomic_long*)own) {
    const struct timespec some = {0, 60000000};
    EXPECT(sigtimedwait(&one, NULL, &some) == -1 && errno == EAGAIN);
  }
  return NULL;
}

static void* looks_at_clocks(void* own) {
  block_all();
  uint64_t counter = 0;
  struct timespec before = {0, 0}, now;
  struct timeval day = {0, 0}, today;
  for (; !ending; ++*(atomic_long*)own) {
    const uint64_t next = __rdtsc();
    EXPECT(next > counter);
    counter = next;
    EXPECT(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    EXPECT(now.tv_sec > before.tv_sec || (now.tv_sec == before.tv_sec && now.tv_nsec >= before.tv_nsec));
    before = now;
    EXPECT(gettimeofday(&today, NULL) == 0 && today.tv_sec >= day.tv_sec);
    day = today;
    EXPECT(sched_getcpu() >= 0);
    usleep(2000);
  }
  return NULL;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn;

static void* takes_turns(void* own) {
  block_all();
  const int mine = *(atomic_long*)own & 1;
  for (; !ending; *(atomic_long*)own += 2) {
    pthread_mutex_lock(&mutex);
    while (turn != mine && !ending) {
      struct timespec until;
      clock_gettime(CLOCK_REALTIME, &until);
      until.tv_sec += 1;
      const int waited = pthread_cond_timedwait(&changed, &mutex, &until);
      EXPECT(waited == 0 || waited == ETIMEDOUT);
    }
    turn = !mine;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    usleep(1000);
  }
  return NULL;
}

static void* brief(void* value) { return (void*)((intptr_t)value + 1); }

static void* makes_threads(void* own) {
  block_all();
  for (intptr_t i = 0; !ending; ++i, ++*(atomic_long*)own) {
    pthread_t thread;
    void* result = NULL;
    EXPECT(pthread_create(&thread, NULL, brief, (void*)i) == 0);
    EXPECT(pthread_join(thread, &result) == 0 && (intptr_t)result == i + 1);
    usleep(5000);
  }
  return NULL;
}

static void* makes_processes(void* own) {
  block_all();
  for (int i = 0; !ending; ++i, ++*(atomic_long*)own) {
    const pid_t child = i % 4 == 3 ? vfork() : fork();
    if (child == 0) {
      if (i % 2 == 1) execl("/bin/true", "true", NULL);
      _exit(i % 2 == 1 ? 99 : i % 50);
    }
    int status = 0;
    EXPECT(child > 0 && waitpid(child, &status, 0) == child);
    const int wanted = i % 2 == 1 ? 0 : i % 50;
    if (status != wanted << 8) printf("child %d of kind %d: status %#x, not %d\n", i, i % 4, (unsigned)status, wanted);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == wanted);
    usleep(20000);
  }
  return NULL;
}

static int sockets[2];

static void* sends(void* own) {
  block_all();
  static uint8_t block[100000];
  for (uint8_t i = 0; !ending; ++i, ++*(atomic_long*)own) {
    memset(block, i, sizeof block);
    for (size_t sent = 0; sent < sizeof block;) {
      const ssize_t now = send(sockets[0], block + sent, sizeof block - sent, MSG_NOSIGNAL);
      EXPECT(now > 0);
      if (now <= 0) return NULL;
      sent += (size_t)now;
    }
    usleep(3000);
  }
  shutdown(sockets[0], SHUT_WR);
  return NULL;
}

static void* receives(void* own) {
  block_all();
  static uint8_t block[65536];
  uint64_t got = 0;
  for (;; ++*(atomic_long*)own) {
    const ssize_t now = read(sockets[1], block, sizeof block);
    EXPECT(now >= 0);
    if (now <= 0) return NULL;
    for (ssize_t i = 0; i < now; ++i, ++got) {
      if (block[i] != (uint8_t)(got / 100000)) {
        printf("byte %llu is %d\n", (unsigned long long)got, block[i]);
        atomic_fetch_add(&failures, 1);
        return NULL;
      }
    }
  }
}

static void* maps(void* own) {
  block_all();
  for (; !ending; ++*(atomic_long*)own) {
    const size_t size = 1 << 20;
    uint8_t* const memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(memory != MAP_FAILED);
    memory[12345] = 7;
    EXPECT(mprotect(memory, size, PROT_READ) == 0 && memory[12345] == 7 && memory[54321] == 0);
    EXPECT(munmap(memory, size) == 0);
    usleep(4000);
  }
  return NULL;
}

static void on_alarm(int signal) { (void)signal, ++alarms; }

int main(void) {
  static void* (*const kinds[])(void*) = {epolls,      polls,         sleeps,          awaits_signals, looks_at_clocks, takes_turns,
                                          takes_turns, makes_threads, makes_processes, sends,          receives,        maps};
  enum { kKinds = sizeof kinds / sizeof *kinds, kPatience_s = 30 };
  pthread_t threads[kKinds];
  struct sigaction action = {.sa_handler = on_alarm};
  sigaction(SIGALRM, &action, NULL);
  EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
  rounds[6] = 1;
  for (int i = 0; i < kKinds; ++i) EXPECT(pthread_create(&threads[i], NULL, kinds[i], &rounds[i]) == 0);
  const struct itimerval period = {{0, 15000}, {0, 15000}};
  setitimer(ITIMER_REAL, &period, NULL);
  printf("ready\n"), fflush(stdout);
  long last[kKinds] = {0};
  int stalled[kKinds] = {0};
  while (access("end", F_OK) != 0) {
    for (int i = 0; i < 66; ++i) EXPECT(pause() == -1 && errno == EINTR);
    for (int i = 0; i < kKinds; ++i) {
      const long now = rounds[i];
      stalled[i] = now == last[i] ? stalled[i] + 1 : 0;
      if (stalled[i] == kPatience_s) printf("thread %d does not get on\n", i), fflush(stdout), ++failures;
      last[i] = now;
    }
  }
  ending = 1;
  for (int i = 0; i < kKinds; ++i) EXPECT(pthread_join(threads[i], NULL) == 0);
  EXPECT(alarms > 0);
  printf(failures ? "failed\n" : "ok\n");
  return failures != 0;
}
