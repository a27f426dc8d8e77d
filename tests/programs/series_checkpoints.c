// Series of equal unsuccessful tests, with nothing else to be seen, over checkpoints.
// images: 2
#include "test.h"

#include <poll.h>
#include <sched.h>
#include <time.h>

static volatile long polls, yields;  // in memory: the registers of all calls are the same
static int pipe_ends[2];

static void* wait_for_byte(void* unused) {
  char byte;
  MUST(read(pipe_ends[0], &byte, 1));
  return unused;
}

int main(void) {
  MUST(pipe(pipe_ends));
  struct pollfd end = {.fd = pipe_ends[0], .events = POLLIN};
  for (polls = 0; polls < 200000; polls++) {
    if (poll(&end, 1, 0) != 0) _exit(97);
  }
  pthread_t waiting;
  MUST0(pthread_create(&waiting, NULL, wait_for_byte, NULL));
  for (yields = 0; yields < 100000; yields++) {
    if (sched_yield() != 0) _exit(96);
  }
  MUST(write(pipe_ends[1], "x", 1));
  MUST0(pthread_join(waiting, NULL));
  return ok("%ld polls, %ld yields", polls, yields);
}
