// Deep recursion: the stacks of main and of a thread grow far, and checkpoints come while they are deep.
#include "test.h"

static uint64_t descend(int depth, int checkpoint) {
  volatile char frame[3000];
  memset((void*)frame, depth & 0xff, sizeof frame);
  uint64_t below = 0;
  if (depth > 0) {
    below = descend(depth - 1, checkpoint);
  } else if (checkpoint) {
    pass_checkpoints();
  }
  CHECK(frame[17] == (char)(depth & 0xff) && frame[2999] == (char)(depth & 0xff));
  return below + (uint64_t)depth;
}

static void* thread(void* unused) {
  (void)unused;
  return (void*)descend(1000, 1);
}

int main(void) {
  CHECK(descend(2000, 1) == 2000ULL * 2001 / 2);
  pthread_t id;
  void* sum;
  MUST0(pthread_create(&id, NULL, thread, NULL));
  MUST0(pthread_join(id, &sum));
  CHECK((uintptr_t)sum == 1000ULL * 1001 / 2);
  CHECK(descend(2300, 0) == 2300ULL * 2301 / 2);
  return ok("stacks");
}
