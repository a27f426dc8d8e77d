// How children end: exit statuses, signals, the core dump bit; waitid reports the same.
#include "test.h"

#include <sys/resource.h>

static int status_of(void (*end)(void)) {
  const pid_t child = MUST(fork());
  if (child == 0) {
    end();
    _exit(77);
  }
  siginfo_t info;
  MUST(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT));
  CHECK(info.si_pid == child);
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(info.si_status == (WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status)));
  return status;
}

static void exit_3(void) { exit(3); }
static void kill_self(void) { kill(getpid(), SIGKILL); }
static void terminate(void) { raise(SIGTERM); }
static void touch_null(void) { *(volatile char*)8 = 1; }
static void divide(void) {
  volatile int zero = 0, many = 1000;
  many = many / zero;
}
static void illegal(void) { __asm__ volatile("ud2"); }
static void killed_waiting(void) {
  const pid_t parent = getpid();
  if (MUST(fork()) == 0) {
    MUST(kill(parent, SIGKILL));
    _exit(0);
  }
  for (;;) pause();
}

int main(void) {
  MUST(setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}));
  int status = status_of(exit_3);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
  const struct {
    void (*end)(void);
    int signal;
  } cases[] = {{kill_self, SIGKILL}, {terminate, SIGTERM}, {touch_null, SIGSEGV},       {divide, SIGFPE},
               {illegal, SIGILL},    {abort, SIGABRT},     {killed_waiting, SIGKILL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    status = status_of(cases[i].end);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == cases[i].signal);
  }
  return ok("children");
}
