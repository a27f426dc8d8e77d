// The least that recording can cost: a bare system call, and copying data once.
// usage: limit_probe CALLS BYTES      prints nanoseconds of so many calls, and of copying so many bytes
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const unsigned long long calls = strtoull(argv[1], NULL, 10), bytes = strtoull(argv[2], NULL, 10);
  double start = now_ns();
  for (unsigned long long i = 0; i < calls; i++) (void)syscall(SYS_getppid);
  const double calls_ns = now_ns() - start;

  // As much at a time as a call has on average, into a log that goes through the processor's caches.
  enum { kLog = 8 << 20 };
  size_t piece = calls ? (size_t)(bytes / calls) : 0;
  piece = piece < 1 ? 1 : piece > kLog / 2 ? kLog / 2 : piece;
  char *log = malloc(kLog), *data = malloc(piece);
  if (!log || !data) return 1;
  memset(log, 1, kLog);
  memset(data, 2, piece);
  size_t at = 0;
  start = now_ns();
  for (unsigned long long done = 0; done < bytes; done += piece) {
    if (at + piece > kLog) at = 0;
    memcpy(log + at, data, piece);
    __asm__ volatile("" ::"r"(log + at) : "memory");
    at += piece;
  }
  printf("%.0f %.0f\n", calls_ns, now_ns() - start);
  return 0;
}
