// Calls write(2) at known times: it reads the wall clock right before each, and says at its end what it read. It calls
// without a pause, after sleeps, after computing, and in turn with a child at the other end of a socket pair. Each
// process makes a file PREFIX.PID of the times, 8 bytes each, in the order of the calls.
//   clocks SECONDS PREFIX
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kMost = 4000000 };
static uint64_t* times;
static size_t count;

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void put(int fd) {
  if (count == kMost) exit(1);
  times[count++] = now_ns();
  if (write(fd, "x", 1) != 1) exit(1);
}

static void compute(unsigned steps) {
  volatile unsigned sum = 0;
  for (unsigned i = 0; i < steps; ++i) sum += i;
}

static int end(const char* prefix) {
  char path[4096];
  snprintf(path, sizeof path, "%s.%d", prefix, (int)getpid());
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const size_t size = count * sizeof *times;
  return file >= 0 && write(file, times, size) == (ssize_t)size ? 0 : 1;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  times = malloc(kMost * sizeof *times);
  const uint64_t end_ns = now_ns() + (uint64_t)(atof(argv[1]) * 1e9);
  const int file = open("/dev/null", O_WRONLY);
  int pair[2];
  if (!times || file < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return 1;
  char byte;
  if (fork() == 0) {
    close(pair[0]);
    while (read(pair[1], &byte, 1) > 0) put(pair[1]);
    return end(argv[2]);
  }
  close(pair[1]);
  unsigned seed = 1;
  while (now_ns() < end_ns) {
    seed = seed * 1103515245 + 12345;
    const unsigned phase = seed >> 16 & 7, length = 1 + (seed >> 19 & 63);
    for (unsigned i = 0; i < length; ++i) {
      if (phase == 0 || phase == 6) usleep(200 + (seed >> 8 & 4095));
      if (phase == 1 || phase == 6) compute(1000000);
      if (phase == 2) compute(10000);
      for (unsigned j = 0; j < 50 && phase >= 3 && phase <= 5; ++j) put(file);
      put(file);
      if (phase != 4 && phase != 6) continue;
      put(pair[0]);
      if (read(pair[0], &byte, 1) != 1) return 1;
    }
  }
  close(pair[0]);
  int status = 1;
  wait(&status);
  return end(argv[2]) || status != 0;
}
