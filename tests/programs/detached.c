// Detached threads, some of which are still blocked when the process exits.
#include "test.h"

#include <semaphore.h>

static sem_t done;
static int ends[2];

static void* finish(void* unused) {
  (void)unused;
  (void)compute(1, 5);
  MUST(sem_post(&done));
  return NULL;
}
static void* block(void* unused) {
  char byte;
  (void)unused;
  MUST(sem_post(&done));
  (void)!read(ends[0], &byte, 1);
  CHECK(!"reached");
  return NULL;
}

int main(void) {
  pthread_attr_t detached;
  pthread_t id;
  MUST(pipe(ends));
  MUST(sem_init(&done, 0, 0));
  MUST0(pthread_attr_init(&detached));
  MUST0(pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED));
  for (int i = 0; i < 20; i++) MUST0(pthread_create(&id, &detached, i < 17 ? finish : block, NULL));
  for (int i = 0; i < 20; i++) MUST(sem_wait(&done));
  pass_checkpoints();
  return ok("detached");
}
