// Timers whose signals come faster than a recorder can stop the program for them, while it makes calls, computes, and is
// in another handler. A program must get on between them, whatever it does: as it would without the recorder.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

#include "test.h"

enum { kPeriodUs = 50, kCalls = 300 };

static volatile sig_atomic_t signals, inner;
static int data_file;

static void on_signal(int number) {
  (void)number;
  const int saved = errno;
  char byte = 0;
  if (signals % 2) CHECK(pread(data_file, &byte, 1, 0) == 1 && byte == 'x');
  signals++;
  errno = saved;
}

// Makes calls between which signals come.
static void on_inner(int number) {
  (void)number;
  for (int i = 0; i < 20; i++) CHECK(getppid() > 0);
  inner++;
}

static void call(void) {
  for (int i = 0; i < kCalls; i++) CHECK(getppid() > 0);
}

static void map(void) {
  for (int i = 0; i < 20; i++) {
    volatile char* const page = MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    *page = 1;
    MUST(munmap((void*)page, 4096));
  }
}

static void wait_often(void) {
  const struct timespec time = {.tv_nsec = 50000};
  for (int i = 0; i < 20; i++) CHECK(nanosleep(&time, NULL) == 0 || errno == EINTR);
}

static void be_interrupted(void) {
  for (int i = 0; i < 5; i++) MUST(raise(SIGUSR1));
}

static void* run_thread(void* unused) {
  sigset_t blocked;
  MUST0(pthread_sigmask(SIG_BLOCK, NULL, &blocked));
  for (int number = 1; number < SIGRTMAX; number++) CHECK(sigismember(&blocked, number) != 1);
  return unused;
}

// A fork or clone fails, and is made again, while a signal is pending (copy_process(), kernel/fork.c).
static void create(void) {
  for (int i = 0; i < 5; i++) {
    const pid_t child = MUST(fork());
    if (child == 0) _exit(run_thread(NULL) != NULL);
    wait_for_exit(child, 0);
    pthread_t thread;
    MUST0(pthread_create(&thread, NULL, run_thread, NULL));
    MUST0(pthread_join(thread, NULL));
  }
}

static void do_everything(void) {
  call();
  noted += compute(1, 20);
  map();
  wait_often();
  be_interrupted();
  create();
}

static void with_interval_timer(void) {
  const struct itimerval value = {.it_interval = {.tv_usec = kPeriodUs}, .it_value = {.tv_usec = kPeriodUs}};
  const struct itimerval never = {{0, 0}, {0, 0}};
  MUST(setitimer(ITIMER_REAL, &value, NULL));
  do_everything();
  MUST(setitimer(ITIMER_REAL, &never, NULL));
}

static void with_posix_timer(int signal) {
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal};
  const struct itimerspec value = {{0, kPeriodUs * 1000}, {0, kPeriodUs * 1000}};
  timer_t timer;
  MUST(timer_create(CLOCK_MONOTONIC, &event, &timer));
  MUST(timer_settime(timer, 0, &value, NULL));
  do_everything();
  MUST(timer_delete(timer));
}

int main(void) {
  const int all[] = {SIGALRM, SIGUSR2, SIGRTMIN + 2, SIGUSR1};
  for (int i = 0; i < 4; i++) {
    struct sigaction action = {.sa_handler = all[i] == SIGUSR1 ? on_inner : on_signal, .sa_flags = i % 2 ? SA_RESTART : 0};
    MUST(sigaction(all[i], &action, NULL));
  }
  data_file = MUST(open("fast_timers.data", O_RDWR | O_CREAT | O_TRUNC, 0600));
  write_all(data_file, "x", 1);
  with_interval_timer();
  with_posix_timer(SIGUSR2);
  with_posix_timer(SIGRTMIN + 2);
  CHECK(signals > 0);
  // Nobody handles this one.
  MUST(signal(SIGALRM, SIG_IGN) == SIG_ERR ? -1 : 0);
  const int before = signals;
  with_interval_timer();
  CHECK(signals == before);
  CHECK(inner == 20);
  MUST(unlink("fast_timers.data"));
  return ok("%d in handlers, %016llx", inner, (unsigned long long)noted);
}
