// Accesses memory that is not there, `argv[1]` times, and recovers from each fault in a handler, as garbage collectors and emulators do.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static sigjmp_buf after;
static volatile int handled;

static void on_fault(int signal) {
  (void)signal;
  ++handled;
  siglongjmp(after, 1);
}

int main(int argc, char** argv) {
  const int times = argc > 1 ? atoi(argv[1]) : 1000;
  const size_t half = 1 << 19;
  char* const memory = mmap(NULL, 2 * half, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || munmap(memory + half, 4096) != 0) return 1;
  signal(SIGSEGV, on_fault);
  for (volatile int i = 0; i < times; ++i) {
    if (sigsetjmp(after, 1) == 0) *(volatile char*)(memory + half) = 1;
  }
  const int good = handled == times;
  puts(good ? "ok" : "WRONG");
  return !good;
}
