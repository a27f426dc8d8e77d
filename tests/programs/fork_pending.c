// A thread forks while another one is in a call whose output the kernel may already have written: the child's memory may or may not hold
// it, but must in a replay if it did when recorded.
#include "test.h"

static int fds[2];
static long buffer[8];

static void* reader(void* unused) {
  while (read(fds[0], buffer, sizeof buffer) > 0) continue;
  return unused;
}

int main(void) {
  pthread_t thread;
  MUST(pipe(fds));
  MUST0(pthread_create(&thread, NULL, reader, NULL));
  uint64_t seen = 0;
  for (long i = 1; i <= 40; i++) {
    const long block[8] = {i, i, i, i, i, i, i, i};
    write_all(fds[1], block, sizeof block);
    compute((uint64_t)i, 2);
    int answer[2];
    MUST(pipe(answer));
    const pid_t child = MUST(fork());
    if (child == 0) {
      write_all(answer[1], buffer, sizeof buffer);
      compute(7, i % 4 ? 1 : 60);
      NOTE(buffer);
      write_all(answer[1], &noted, sizeof noted);
      _exit(0);
    }
    long found[8];
    read_all(answer[0], found, sizeof found);
    read_all(answer[0], &noted, sizeof noted);
    seen = seen * 31 + noted;
    CHECK(found[0] <= i && found[7] <= i);
    wait_for_exit(child, 0);
    close(answer[0]), close(answer[1]);
  }
  close(fds[1]);
  MUST0(pthread_join(thread, NULL));
  return ok("%016lx", seen);
}
