// Calls for which C libraries use newer ones, and calls that only C libraries make.
#include "test.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <time.h>

static void descriptors(void) {
  int ends[2];
  char byte = 0;
  MUST(syscall(SYS_pipe, ends));
  CHECK(write(ends[1], "p", 1) == 1 && read(ends[0], &byte, 1) == 1 && byte == 'p');

  const int counter = MUST(syscall(SYS_eventfd, 5));
  uint64_t count = 0;
  CHECK(read(counter, &count, 8) == 8 && count == 5);

  uint64_t set = 1ull << (SIGUSR1 - 1);
  MUST(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, NULL, 8));
  const int signals = MUST(syscall(SYS_signalfd, -1, &set, 8));
  MUST(syscall(SYS_tkill, getpid(), SIGUSR1));
  unsigned char info[128];
  CHECK(read(signals, info, 128) == 128 && info[0] == SIGUSR1);
  siginfo_t sent;
  memset(&sent, 0, sizeof sent);
  sent.si_code = SI_QUEUE;
  sent.si_value.sival_int = 4711;
  MUST(syscall(SYS_rt_tgsigqueueinfo, getpid(), getpid(), SIGUSR1, &sent));
  CHECK(read(signals, info, 128) == 128 && *(int*)(info + 44) == 4711);  // ssi_int

  const int timer = MUST(timerfd_create(CLOCK_MONOTONIC, 0));
  MUST(timerfd_settime(timer, 0, &(struct itimerspec){.it_value = {1000, 0}}, NULL));
  MAY(ioctl(timer, 0x40085400 /* TFD_IOC_SET_TICKS */, &(uint64_t){3}), ENOTTY);
}

static void waits(void) {
  int ends[2];
  MUST(pipe(ends));
  const int poller = MUST(syscall(SYS_epoll_create, 1));
  MUST(epoll_ctl(poller, EPOLL_CTL_ADD, ends[0], &(struct epoll_event){EPOLLIN, {.u64 = 4711}}));
  struct epoll_event found[2];
  memset(found, 0, sizeof found);
  uint64_t set = 0;
  const struct timespec now = {0, 0};
  CHECK(syscall(SYS_epoll_pwait, poller, found, 2, 0, &set, 8) == 0);
  CHECK(write(ends[1], "x", 1) == 1);
  CHECK(syscall(SYS_epoll_pwait, poller, found, 2, -1, &set, 8) == 1 && found[0].data.u64 == 4711);
  found[0].data.u64 = 0;
  CHECK(syscall(SYS_epoll_pwait2, poller, found, 2, &now, &set, 8) == 1 && found[0].data.u64 == 4711);
  fd_set reading;
  FD_ZERO(&reading);
  FD_SET(ends[0], &reading);
  struct timeval limit = {5, 0};
  CHECK(syscall(SYS_select, ends[0] + 1, &reading, NULL, NULL, &limit) == 1 && FD_ISSET(ends[0], &reading));
  CHECK(limit.tv_sec < 5 || limit.tv_usec == 0);
  struct timespec rest = {5, 0};
  struct pollfd polled = {.fd = ends[0], .events = POLLIN};
  CHECK(syscall(SYS_ppoll, &polled, 1, &rest, &set, 8) == 1 && polled.revents == POLLIN);
  NOTE(rest);
  struct iovec vector = {"yz", 2};
  CHECK(syscall(SYS_pwritev2, ends[1], &vector, 1, -1L, -1L, 0) == 2);
  char bytes[3];
  read_all(ends[0], bytes, 3);
  CHECK(memcmp(bytes, "xyz", 3) == 0);
}

// A child that sleeps is stopped and continued: the kernel finishes its sleep by restart_syscall.
static void restarted(void) {
  const pid_t child = MUST(syscall(SYS_fork));
  if (child == 0) {
    const struct timespec while_ = {0, 300000000};
    long result;  // an instruction that is executed once, so that a recorder has not replaced it
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_nanosleep), "D"(&while_), "S"(NULL) : "rcx", "r11", "memory");
    _exit(result == 0 ? 4 : 5);
  }
  int status;
  char state[300];
  do {  // until it sleeps
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/syscall", child);
    const int file = MUST(open(path, O_RDONLY));
    const ssize_t size = read(file, state, sizeof state - 1);
    state[size > 0 ? size : 0] = 0;
    MUST(close(file));
    sched_yield();
  } while (strncmp(state, "35 ", 3) != 0);
  MUST(kill(child, SIGSTOP));
  CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
  MUST(kill(child, SIGCONT));
  wait_for_exit(child, 4);
}

static void timers(void) {
  int timer = -1;
  struct itimerspec rest = {{0, 0}, {0, 0}}, set = {{0, 0}, {1000, 0}};
  struct sigevent none = {.sigev_notify = SIGEV_NONE};
  MUST(syscall(SYS_timer_create, CLOCK_MONOTONIC, &none, &timer));
  MUST(syscall(SYS_timer_settime, timer, 0, &set, NULL));
  MUST(syscall(SYS_timer_gettime, timer, &rest));
  CHECK(rest.it_value.tv_sec >= 900 && rest.it_value.tv_sec <= 1000);
  CHECK(syscall(SYS_timer_getoverrun, timer) == 0);
  MUST(syscall(SYS_timer_delete, timer));
}

int main(void) {
  descriptors();
  waits();
  restarted();
  timers();
  return ok("%016lx", noted);
}
