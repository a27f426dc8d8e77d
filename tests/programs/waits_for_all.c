// build: -pthread
// period: 20ms
// A program that waits for children of all kinds finds its own, and no others that somebody else has given it, while
// one of its threads computes.
#include <stdatomic.h>

#include "test.h"

enum { CHILDREN = 12, CANARY = 0x5a5a5a5a };

static atomic_int over;

static void* compute_on(void* unused) {
  while (!atomic_load(&over)) compute(1, 5), getppid();
  return unused;
}

static pid_t start(int status) {
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 100; i++) compute(1, 5), getppid();
    _exit(status);
  }
  MUST(child);
  return child;
}

static void expect_status(int status, int expected) { CHECK(WIFEXITED(status) && WEXITSTATUS(status) == expected); }

int main(void) {
  pthread_t computing;
  MUST0(pthread_create(&computing, NULL, compute_on, NULL));
  for (int i = 0; i < CHILDREN; i++) {
    const pid_t child = start(i + 1);
    int status = CANARY;
    siginfo_t info = {.si_pid = CANARY};
    switch (i % 4) {
      case 0:
        CHECK(waitpid(-1, &status, __WALL) == child);
        expect_status(status, i + 1);
        break;
      case 1:
        MUST(waitid(P_ALL, 0, &info, WEXITED | __WALL));
        CHECK(info.si_pid == child && info.si_status == i + 1);
        break;
      case 2: {
        pid_t found = 0;
        while ((found = waitpid(-1, &status, __WALL | WNOHANG)) == 0) {
          CHECK(status == CANARY);
          compute(1, 5);
        }
        CHECK(found == child);
        expect_status(status, i + 1);
        break;
      }
      default:
        MUST(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT | __WALL));
        CHECK(info.si_pid == child);
        CHECK(waitpid(child, &status, 0) == child);
        expect_status(status, i + 1);
    }
  }
  atomic_store(&over, 1);
  MUST0(pthread_join(computing, NULL));
  FAILS(waitpid(-1, NULL, __WALL), ECHILD);
  FAILS(waitpid(-1, NULL, __WCLONE), ECHILD);
  return ok("%d children", CHILDREN);
}
