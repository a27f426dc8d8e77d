// Signals that come while calls are made over and over, so that a recorder that serves them without a stop is caught in the middle:
// handlers see the program's own addresses, sleeping calls end with EINTR, and no byte is lost.
#include "test.h"

#include <poll.h>
#include <sys/time.h>
#include <ucontext.h>

static volatile sig_atomic_t ticks;
static volatile sig_atomic_t strange;
extern char __executable_start, etext;

// Every address that the handler is shown belongs to the program or a library.
static void tick(int signal, siginfo_t* info, void* context) {
  (void)signal, (void)info;
  const uintptr_t at = (uintptr_t)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
  const int in_program = at >= (uintptr_t)&__executable_start && at < (uintptr_t)&etext;
  const int in_library = at >= 0x7e0000000000;  // the kernel maps them below the stack, within a terabyte or so
  strange += !in_program && !in_library;
  ticks++;
}

static void set_timer(int microseconds) {
  const struct itimerval every = {{0, microseconds}, {0, microseconds}};
  MUST(setitimer(ITIMER_REAL, &every, NULL));
}

int main(void) {
  MUST(sigaction(SIGALRM, &(struct sigaction){.sa_sigaction = tick, .sa_flags = SA_SIGINFO}, NULL));
  int ends[2];
  MUST(pipe(ends));
  set_timer(700);
  uint32_t sent = 0, received = 0;
  for (int i = 0; i < 20000; i++) {
    const uint32_t value = sent * 2654435761u;
    const ssize_t n = write(ends[1], &value, sizeof value);
    if (n == sizeof value) sent++;
    CHECK(n == sizeof value || (n == -1 && errno == EINTR));
    uint32_t back = 0;
    if (n != sizeof value) continue;
    ssize_t got;
    while ((got = read(ends[0], &back, sizeof back)) == -1 && errno == EINTR) continue;
    CHECK(got == sizeof back && back == received * 2654435761u);
    received++;
  }
  CHECK(sent == received);
  set_timer(3000);
  int interrupted = 0;
  for (int i = 0; i < 40; i++) {
    struct pollfd nothing = {.fd = ends[0], .events = POLLIN};
    const int before = ticks;
    const int n = poll(&nothing, 1, 1000);
    CHECK(n == -1 && errno == EINTR && ticks > before);
    interrupted++;
  }
  for (int i = 0; i < 40; i++) {
    char byte;
    CHECK(read(ends[0], &byte, 1) == -1 && errno == EINTR);
    interrupted++;
  }
  for (int i = 0; i < 20; i++) {
    struct timespec left = {0, 0};
    CHECK(nanosleep(&(struct timespec){1, 0}, &left) == -1 && errno == EINTR && left.tv_nsec > 0);
    interrupted++;
  }
  // With SA_RESTART, the call continues as if no signal had come.
  MUST(sigaction(SIGALRM, &(struct sigaction){.sa_sigaction = tick, .sa_flags = SA_SIGINFO | SA_RESTART}, NULL));
  const pid_t child = MUST(fork());
  if (child == 0) {
    for (int i = 0; i < 20; i++) {
      MUST(usleep(4000));
      MUST(write(ends[1], "x", 1));
    }
    _exit(0);
  }
  for (int i = 0; i < 20; i++) {
    char byte;
    CHECK(read(ends[0], &byte, 1) == 1 && byte == 'x');
  }
  set_timer(0);
  wait_for_exit(child, 0);
  CHECK(strange == 0 && ticks > interrupted);
  return ok("%d interrupted", interrupted);
}
