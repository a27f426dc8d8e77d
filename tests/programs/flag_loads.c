// Two threads load the flags register again and again (popfq), between calls. Amid that they take turns.
#include <pthread.h>

#include "test.h"

enum { kMicroseconds = 600000 };

static volatile int stop;

static void* load_flags(void* unused) {
  (void)unused;
  while (!stop) {
    getppid();
    for (int i = 0; i < 20; i++) {
      // The red zone is left alone.
      __asm__ volatile("sub $128, %%rsp\n\tpush $0x202\n\tpopfq\n\tadd $128, %%rsp" : : : "memory", "cc");
    }
  }
  return NULL;
}

int main(void) {
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) MUST0(pthread_create(&threads[i], NULL, load_flags, NULL));
  CHECK(usleep(kMicroseconds) == 0);
  stop = 1;
  for (int i = 0; i < 2; i++) MUST0(pthread_join(threads[i], NULL));
  return ok("both threads ended");
}
