// A process ends, or is killed, while a vfork child still runs in its memory: the kernel clears the words of its threads there.
#include "test.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>

static int told[2], asked[2];
static volatile int word = 7;

static void* lend(void* unused) {
  const pid_t lender = getpid(), child = vfork();
  if (child == 0) {
    char byte = 0;
    (void)!write(told[1], &byte, 1);
    (void)!read(asked[0], &byte, 1);
    while (getppid() == lender) sched_yield();
    byte = (char)word;
    (void)!write(told[1], &byte, 1);
    if (byte == 0) execl("/bin/true", "true", (char*)NULL);
    _exit(1);
  }
  return unused;
}

static void lender(int killed) {
  pthread_t id;
  MUST(syscall(SYS_set_tid_address, &word));
  MUST0(pthread_create(&id, NULL, lend, NULL));
  while (killed) pause();
  char byte = 0;
  CHECK(read(told[0], &byte, 1) == 1);
  exit(3);
}

int main(void) {
  MUST(prctl(PR_SET_CHILD_SUBREAPER, 1));
  for (int killed = 0; killed < 2; killed++) {
    MUST(pipe(told));
    MUST(pipe(asked));
    char byte = 1;
    const pid_t child = MUST(fork());
    if (child == 0) lender(killed);
    if (killed) {
      CHECK(read(told[0], &byte, 1) == 1);
      MUST(kill(child, SIGKILL));
    }
    int status = 0;
    CHECK(MUST(waitpid(child, &status, 0)) == child);
    CHECK(killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : WIFEXITED(status) && WEXITSTATUS(status) == 3);
    CHECK(write(asked[1], &byte, 1) == 1);
    CHECK(read(told[0], &byte, 1) == 1 && byte == 0);
    CHECK(MUST(wait(&status)) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (int i = 0; i < 2; i++) close(told[i]), close(asked[i]);
  }
  return ok("2 lenders");
}
