// Processes are born while another thread's read has its bytes already, but does not end before the birth. What the kernel has written
// into its buffer may or may not be in the child's memory, and nobody can tell which. Images in the children must equal what replays
// arrive at. The reader is in the same process, or in one that runs in its memory.
#include "test.h"

enum { kRounds = 25, kValues = 64 };
static int channel[2];
static long buffer[kValues];

static void* reader(void* unused) {
  while (MUST(read(channel[0], buffer, sizeof buffer)) > 0) {
  }
  return unused;
}

static void* vforked_reader(void* unused) {
  const pid_t child = MUST(vfork());
  if (child == 0) {
    close(channel[1]);
    reader(NULL);
    _exit(0);
  }
  wait_for_exit(child, 0);
  return unused;
}

static int descend(int generations) {
  const pid_t child = MUST(fork());
  if (child == 0) {
    for (int i = 0; i < 12; i++) {
      compute((uint64_t)i, 1);
      MUST(getppid());
    }
    _exit(generations > 1 ? descend(generations - 1) : 0);
  }
  wait_for_exit(child, 0);
  return 0;
}

static void descend_beside(void* (*read_all)(void*)) {
  pthread_t thread;
  MUST(pipe(channel));
  MUST0(pthread_create(&thread, NULL, read_all, NULL));
  for (long i = 0; i < kRounds; i++) {
    long values[kValues];
    for (int k = 0; k < kValues; k++) values[k] = i;
    write_all(channel[1], values, sizeof values);
    compute((uint64_t)i, 1);  // the reader leaves the kernel, and waits for the baton
    descend(1 + (int)(i % 2));
  }
  close(channel[1]);
  MUST0(pthread_join(thread, NULL));
  close(channel[0]);
}

int main(void) {
  descend_beside(reader);
  descend_beside(vforked_reader);
  return ok("%ld", buffer[0]);
}
