// Record locks and robust mutexes: what remains when a holder dies.
#include "test.h"

#include <fcntl.h>

static pthread_mutex_t robust;
static void* die_holding(void* unused) {
  (void)unused;
  MUST0(pthread_mutex_lock(&robust));
  return NULL;
}

int main(void) {
  const int file = MUST(open("locks.data", O_RDWR | O_CREAT, 0600));
  MUST(unlink("locks.data"));
  int ends[2];
  char byte;
  MUST(pipe(ends));
  const pid_t child = MUST(fork());
  if (child == 0) {
    MUST(fcntl(file, F_SETLK, &(struct flock){.l_type = F_WRLCK, .l_start = 10, .l_len = 5}));
    write_all(ends[1], "l", 1);
    pass_checkpoints();
    _exit(0);
  }
  read_all(ends[0], &byte, 1);
  struct flock found = {.l_type = F_WRLCK, .l_start = 0, .l_len = 100};
  MUST(fcntl(file, F_GETLK, &found));
  CHECK(found.l_type == F_WRLCK ? found.l_start == 10 && found.l_len == 5 : found.l_type == F_UNLCK);
  MUST(fcntl(file, F_SETLKW, &(struct flock){.l_type = F_WRLCK, .l_len = 100}));  // waits for its death
  wait_for_exit(child, 0);

  pthread_mutexattr_t attributes;
  pthread_t id;
  MUST0(pthread_mutexattr_init(&attributes));
  MUST0(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
  MUST0(pthread_mutex_init(&robust, &attributes));
  MUST0(pthread_create(&id, NULL, die_holding, NULL));
  MUST0(pthread_join(id, NULL));
  CHECK(pthread_mutex_lock(&robust) == EOWNERDEAD && pthread_mutex_consistent(&robust) == 0);
  MUST0(pthread_mutex_unlock(&robust));
  return ok("locks");
}
