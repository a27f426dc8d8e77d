// pthread_cancel: in a blocked read, in a condition wait, in a loop of tests, asynchronously; cleanup handlers run.
#include "test.h"

static int ends[2], cleaned;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static volatile int started;

static void clean(void* mutex_or_null) {
  cleaned++;
  if (mutex_or_null) MUST0(pthread_mutex_unlock((pthread_mutex_t*)mutex_or_null));
}
static void* in_read(void* unused) {
  char byte;
  (void)unused;
  pthread_cleanup_push(clean, NULL);
  started = 1;
  (void)!read(ends[0], &byte, 1);
  pthread_cleanup_pop(0);
  return NULL;
}
static void* in_wait(void* unused) {
  (void)unused;
  MUST0(pthread_mutex_lock(&mutex));
  pthread_cleanup_push(clean, &mutex);
  started = 1;
  for (;;) MUST0(pthread_cond_wait(&never, &mutex));
  pthread_cleanup_pop(0);
  return NULL;
}
static void* in_loop(void* unused) {
  (void)unused;
  pthread_cleanup_push(clean, NULL);
  started = 1;
  for (;;) pthread_testcancel(), sched_yield();
  pthread_cleanup_pop(0);
  return NULL;
}
static void* asynchronous(void* unused) {
  int old;
  (void)unused;
  pthread_cleanup_push(clean, NULL);
  MUST0(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old));
  started = 1;
  for (;;) sched_yield();
  pthread_cleanup_pop(0);
  return NULL;
}

int main(void) {
  void* (*const kinds[])(void*) = {in_read, in_wait, in_loop, asynchronous};
  MUST(pipe(ends));
  for (int i = 0; i < 4; i++) {
    pthread_t id;
    void* result;
    started = 0;
    MUST0(pthread_create(&id, NULL, kinds[i], NULL));
    while (!started) sched_yield();
    if (i < 2) usleep(2000);  // so that it probably blocks already; correct in either case
    MUST0(pthread_cancel(id));
    MUST0(pthread_join(id, &result));
    CHECK(result == PTHREAD_CANCELED && cleaned == i + 1);
  }
  MUST0(pthread_mutex_trylock(&mutex));
  return ok("%d cancelled", cleaned);
}
