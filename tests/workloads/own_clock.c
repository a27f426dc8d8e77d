// A process that reads its own CPU clock before each message that it sends to its child, and prints what it has read.
// It computes for different times before a message, sends some in bursts, and makes some thousand calls in between.
// usage: own_clock ROUNDS
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kMost = 100000, kBurst = 8 };

static uint64_t cpu_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void compute(uint64_t steps) {
  static volatile uint64_t x = 88172645463325252u;
  for (uint64_t i = 0; i < steps; i++) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
}

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 300;
  static uint64_t sent[kMost];
  int messages = 0, to_child[2], status;
  if (pipe(to_child) != 0) return 2;
  const pid_t child = fork();
  if (child < 0) return 2;
  if (child == 0) {
    uint64_t at;
    close(to_child[1]);
    while (read(to_child[0], &at, sizeof at) == sizeof at) messages++;
    return messages == 0;
  }
  close(to_child[0]);
  for (int i = 0; i < rounds; i++) {
    compute((uint64_t)(i * 7919 % 13) * 100000);
    for (int calls = i % 5 == 0 ? 2000 : 0; calls > 0; calls--) getppid();
    for (int burst = i % 3 == 0 ? kBurst : 1; burst > 0 && messages < kMost; burst--) {
      sent[messages] = cpu_ns();
      if (write(to_child[1], &sent[messages], sizeof *sent) != sizeof *sent) return 2;
      messages++;
    }
  }
  close(to_child[1]);
  if (wait(&status) < 0 || status != 0) return 1;
  for (int i = 0; i < messages; i++) printf("%llu\n", (unsigned long long)sent[i]);
  return 0;
}
