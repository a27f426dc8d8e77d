// build: -static
// A static binary: threads and messages without a loader or interpreter.
#include "test.h"

#include <sys/auxv.h>

static int ends[2];
static void* talk(void* unused) {
  (void)unused;
  for (int i = 0; i < 100; i++) {
    write_all(ends[1], &i, sizeof i);
    (void)compute(1, 3);
  }
  return NULL;
}

int main(void) {
  pthread_t id;
  MUST(pipe(ends));
  MUST0(pthread_create(&id, NULL, talk, NULL));
  for (int i = 0; i < 100; i++) {
    int found;
    read_all(ends[0], &found, sizeof found);
    CHECK(found == i);
  }
  MUST0(pthread_join(id, NULL));
  const pid_t child = MUST(fork());
  if (child == 0) {
    pass_checkpoints();
    _exit(4);
  }
  wait_for_exit(child, 4);
  CHECK(getauxval(AT_BASE) == 0);
  return ok("static");
}
