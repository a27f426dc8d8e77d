// A process makes one thread after the other. Meanwhile other processes come to share writable memory with it.
#include "test.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

enum { kSize = 4096, kSharers = 60, kRounds = 1000 };

static volatile int* map(void) {
  const int fd = MUST(open("shared", O_RDWR | O_CREAT, 0600));
  MUST(ftruncate(fd, kSize));
  volatile int* const mapped = mmap(NULL, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(mapped != MAP_FAILED);
  MUST(close(fd));
  return mapped;
}

static void* nothing(void* unused) { return unused; }

static void* births(void* ends) {
  for (int round = 0; round < kRounds && !*(volatile int*)ends; round++) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, nothing, NULL) == 0);
    for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  }
  return NULL;
}

int main(int argc, char** argv) {
  volatile int* const count = map();
  if (argc > 1) {
    __atomic_fetch_add(count, 1, __ATOMIC_SEQ_CST);
    return 3;
  }
  *count = 0;
  volatile int ends = 0;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, births, (void*)&ends) == 0);
  for (int i = 0; i < kSharers; i++) {
    const pid_t child = MUST(vfork());
    if (child == 0) {
      execl(argv[0], argv[0], "shares", NULL);
      _exit(4);
    }
    wait_for_exit(child, 3);
  }
  ends = 1;
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(*count == kSharers);
  return ok("%d", kSharers);
}
