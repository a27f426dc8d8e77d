// Processes in a ring of pipes. Each computes, sends a block of what it has computed to the next one, and receives one
// from the one before, so that soon everything depends on everything.
// usage: talkers PROCESSES ROUNDS WORK BYTES
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kMost = 64, kLargest = 4096 };

static int transfer(int writes, int fd, uint8_t* block, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = writes ? write(fd, block + done, bytes - done) : read(fd, block + done, bytes - done);
    if (n <= 0) return 0;
    done += (size_t)n;
  }
  return 1;
}

static int talk(int from, int to, int rounds, int work, size_t bytes) {
  static uint64_t mine[kLargest / 8], theirs[kLargest / 8];
  volatile uint64_t x = 88172645463325252u + (uint64_t)to;
  for (int i = 0; i < rounds; i++) {
    for (int j = 0; j < work; j++) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    for (size_t k = 0; k < bytes / 8; k++) mine[k] = x + k + theirs[k];
    if (!transfer(1, to, (uint8_t*)mine, bytes) || !transfer(0, from, (uint8_t*)theirs, bytes)) return 1;
  }
  return 0;
}

int main(int argc, char** argv) {
  const int processes = argc > 1 ? atoi(argv[1]) : 12, rounds = argc > 2 ? atoi(argv[2]) : 500;
  const int work = argc > 3 ? atoi(argv[3]) : 100000;
  const size_t bytes = argc > 4 ? (size_t)atoi(argv[4]) : 64;
  int pipes[kMost][2], good = 1;
  if (processes < 1 || processes > kMost || bytes < 8 || bytes > kLargest) return 2;
  for (int i = 0; i < processes; i++) {
    if (pipe(pipes[i]) != 0) return 2;
  }
  for (int i = 0; i < processes; i++) {
    const pid_t child = fork();
    if (child < 0) return 2;
    if (child == 0) {
      return talk(pipes[i][0], pipes[(i + 1) % processes][1], rounds, work, bytes);
    }
  }
  for (int i = 0, status; i < processes; i++) good &= wait(&status) > 0 && status == 0;
  puts(good ? "ok" : "WRONG");
  return !good;
}
