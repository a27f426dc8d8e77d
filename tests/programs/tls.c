// Thread-local variables, keys with destructors, pthread_once and errno, across checkpoints.
#include "test.h"

enum { kThreads = 4 };
static __thread uint64_t local = 42;
static __thread char big[5000];
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int made, destroyed;
static pthread_barrier_t barrier;

static void destroy(void* value) {
  free(value);
  __atomic_add_fetch(&destroyed, 1, __ATOMIC_SEQ_CST);
}
static void make_key(void) {
  made++;
  MUST0(pthread_key_create(&key, destroy));
}
static void* thread(void* number) {
  const uint64_t self = (uint64_t)(uintptr_t)number;
  MUST0(pthread_once(&once, make_key));
  CHECK(local == 42);
  local = self;
  memset(big, (int)self, sizeof big);
  uint64_t* value = (uint64_t*)malloc(sizeof *value);
  *value = self * 7;
  MUST0(pthread_setspecific(key, value));
  errno = (int)self;
  const int result = pthread_barrier_wait(&barrier);
  if (self == 1) pass_checkpoints();
  CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
  CHECK(local == self && big[0] == (char)self && big[4999] == (char)self);
  CHECK(*(uint64_t*)pthread_getspecific(key) == self * 7);
  if (self != 1) CHECK(errno == (int)self);
  return NULL;
}

int main(void) {
  pthread_t ids[kThreads];
  MUST0(pthread_barrier_init(&barrier, NULL, kThreads));
  for (uintptr_t i = 0; i < kThreads; i++) MUST0(pthread_create(&ids[i], NULL, thread, (void*)(i + 1)));
  for (int i = 0; i < kThreads; i++) MUST0(pthread_join(ids[i], NULL));
  CHECK(local == 42 && made == 1 && destroyed == kThreads);
  return ok("%d threads", kThreads);
}
