// POSIX named semaphores between two processes that open them by name.
#include "test.h"

#include <fcntl.h>
#include <semaphore.h>

int main(void) {
  char names[2][64];
  snprintf(names[0], sizeof names[0], "/redrive-ping-%d", getpid());
  snprintf(names[1], sizeof names[1], "/redrive-pong-%d", getpid());
  for (int i = 0; i < 2; i++) CHECK(sem_open(names[i], O_CREAT | O_EXCL, 0600, 0) != SEM_FAILED);
  const pid_t child = MUST(fork());
  sem_t *ping = sem_open(names[0], 0), *pong = sem_open(names[1], 0);
  CHECK(ping != SEM_FAILED && pong != SEM_FAILED);
  for (int i = 0; i < 200; i++) {
    MUST(sem_post(child ? ping : pong));
    MUST(sem_wait(child ? pong : ping));
  }
  if (child == 0) _exit(0);
  wait_for_exit(child, 0);
  for (int i = 0; i < 2; i++) MUST(sem_unlink(names[i]));
  CHECK(sem_open(names[0], 0) == SEM_FAILED && errno == ENOENT);
  return ok("200 turns");
}
