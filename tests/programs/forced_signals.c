// rdtsc and cpuid while SIGSEGV and SIGILL are blocked or ignored. The recorder needs these signals for itself, but the program's
// handlers and masks must stay as they are.
#include "test.h"

#include <cpuid.h>
#include <sys/mman.h>
#include <x86intrin.h>

static volatile sig_atomic_t faults;
static char* page;

static void on_fault(int signal) {
  (void)signal;
  faults++;
  MUST(mprotect(page, 4096, PROT_READ | PROT_WRITE));
}

// Each use has a site of its own: the recorder sees only the first uses of a site.
#define READ_COUNTER(out) __asm__ volatile("rdtsc\n shl $32, %%rdx\n or %%rdx, %0" : "=a"(out)::"rdx", "cc")
static uint64_t ask(void) {
  uint64_t now;
  unsigned a, b, c, d;
  READ_COUNTER(now);
  __cpuid(0, a, b, c, d);
  return now + a + b + c + d;
}
static uint64_t ask_elsewhere(void) {
  uint64_t now;
  unsigned a, b, c, d;
  READ_COUNTER(now);
  __cpuid(0, a, b, c, d);
  return now + a + b + c + d + 1;
}

static void expect(int blocked, void (*handler)(int)) {
  sigset_t now;
  MUST(sigprocmask(SIG_SETMASK, NULL, &now));
  const int signals[] = {SIGSEGV, SIGILL};
  for (int i = 0; i < 2; i++) {
    CHECK(sigismember(&now, signals[i]) == blocked);
    struct sigaction action;
    MUST(sigaction(signals[i], NULL, &action));
    CHECK(action.sa_handler == handler);
    CHECK(handler != on_fault || (action.sa_flags & SA_NODEFER && sigismember(&action.sa_mask, SIGUSR1)));
  }
}

static void set_handler(void (*handler)(int)) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NODEFER};
  sigaddset(&action.sa_mask, SIGUSR1);
  MUST(sigaction(SIGSEGV, &action, NULL));
  MUST(sigaction(SIGILL, &action, NULL));
}

// A handler that runs with all signals blocked asks too.
static void in_handler(int signal) {
  (void)signal;
  CHECK(ask_elsewhere());
  expect(1, on_fault);
}

static void* thread(void* unused) {
  CHECK(ask());
  expect(1, on_fault);
  return unused;
}

int main(void) {
  sigset_t all, old;
  sigfillset(&all);
  page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(page != MAP_FAILED);
  void (*const handlers[])(int) = {on_fault, SIG_IGN, SIG_DFL};
  for (int i = 0; i < 3; i++) {
    set_handler(handlers[i]);
    CHECK(ask());
    expect(0, handlers[i]);
    MUST(sigprocmask(SIG_SETMASK, &all, &old));
    CHECK(ask_elsewhere());
    expect(1, handlers[i]);
    MUST(sigprocmask(SIG_SETMASK, &old, NULL));
    expect(0, handlers[i]);
  }
  set_handler(on_fault);
  struct sigaction action = {.sa_handler = in_handler, .sa_mask = all};
  MUST(sigaction(SIGUSR1, &action, NULL));
  MUST(raise(SIGUSR1));
  expect(0, on_fault);
  // A thread and a child inherit the mask and the handlers of their maker.
  MUST(sigprocmask(SIG_SETMASK, &all, &old));
  pthread_t made;
  MUST0(pthread_create(&made, NULL, thread, NULL));
  MUST0(pthread_join(made, NULL));
  const pid_t child = MUST(fork());
  if (child == 0) {
    thread(NULL);
    MUST(sigprocmask(SIG_SETMASK, &old, NULL));
    page[0] = 1;
    _exit(faults == 1 ? 7 : 8);
  }
  wait_for_exit(child, 7);
  MUST(sigprocmask(SIG_SETMASK, &old, NULL));
  page[0] = 1;
  CHECK(faults == 1);
  return ok("kept");
}
