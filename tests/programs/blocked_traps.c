// A thread that blocks SIGTRAP, or ignores it, computes while another one waits for its turn. The recorder has it execute some instructions
// one by one then, which needs this signal, but the program's handler and mask must stay as they are.
#include "test.h"

static volatile int done;
static volatile sig_atomic_t caught;
static volatile uint64_t sink;

static void on_trap(int signal) { caught += signal == SIGTRAP; }

static void until_done(void) {
  while (!done) sink = compute(sink, 1);
}

static void expect(void (*handler)(int), int blocked) {
  struct sigaction action;
  MUST(sigaction(SIGTRAP, NULL, &action));
  CHECK(action.sa_handler == handler && action.sa_flags & SA_NODEFER && sigismember(&action.sa_mask, SIGUSR1));
  sigset_t now;
  MUST0(pthread_sigmask(SIG_SETMASK, NULL, &now));
  CHECK(sigismember(&now, SIGTRAP) == blocked && sigismember(&now, SIGTERM) == blocked);
}

// One of its signals is pending meanwhile.
static void* blocks(void* unused) {
  sigset_t all, none, pending;
  sigfillset(&all);
  sigemptyset(&none);
  MUST0(pthread_sigmask(SIG_SETMASK, &all, NULL));
  MUST0(pthread_kill(pthread_self(), SIGTRAP));
  until_done();
  expect(on_trap, 1);
  MUST(sigpending(&pending));
  CHECK(sigismember(&pending, SIGTRAP) && caught == 0);
  MUST0(pthread_sigmask(SIG_SETMASK, &none, NULL));
  CHECK(caught == 1);
  return unused;
}

static void* ignores(void* unused) {
  until_done();
  expect(SIG_IGN, 0);
  MUST0(pthread_kill(pthread_self(), SIGTRAP));
  return unused;
}

static void beside(void* (*body)(void*), void (*handler)(int)) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NODEFER};
  sigaddset(&action.sa_mask, SIGUSR1);
  MUST(sigaction(SIGTRAP, &action, NULL));
  done = 0;
  pthread_t thread;
  MUST0(pthread_create(&thread, NULL, body, NULL));
  for (int i = 0; i < 30; i++) usleep(1000);
  done = 1;
  MUST0(pthread_join(thread, NULL));
}

int main(void) {
  beside(blocks, on_trap);
  beside(ignores, SIG_IGN);
  return ok("%d caught", (int)caught);
}
