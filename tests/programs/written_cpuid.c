// images: 4
// period: 50ms
// Processes that write code which executes cpuid, as HotSpot does, keep what it says of the processor that they are on, and compute for a while
// on all processors. So what they have kept is in their images, and a replay that asked on another processor would not equal these.
#include "test.h"

#include <cpuid.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

enum { kChildren = 4, kLeaves = 2 };

// push %rbx; mov %edi, %eax; mov %esi, %ecx; mov %rdx, %r8; cpuid; mov %ebx, (%r8); mov %edx, 4(%r8); pop %rbx; ret
static const unsigned char kAsk[] = {0x53, 0x89, 0xf8, 0x89, 0xf1, 0x49, 0x89, 0xd0, 0x0f, 0xa2, 0x41, 0x89, 0x18, 0x41, 0x89, 0x50, 0x04, 0x5b, 0xc3};

static volatile unsigned kept[kLeaves][2];

static void ask(int by_protection) {
  const int both = PROT_READ | PROT_WRITE | PROT_EXEC;
  unsigned char* code = mmap(NULL, 4096, by_protection ? PROT_READ : both, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(code != MAP_FAILED);
  if (by_protection) MUST(mprotect(code, 4096, both));
  memcpy(code, kAsk, sizeof kAsk);
  void (*run)(unsigned leaf, unsigned subleaf, volatile unsigned* to);
  memcpy(&run, &code, sizeof run);
  run(1, 0, kept[0]);   // the initial APIC id is in ebx
  run(11, 0, kept[1]);  // the x2APIC id is in edx
}

// Whether cpuid names processors that Linux has. In some virtual machines it names those of the host, and others at any time.
static int names_own_processors(void) {
  unsigned eax, ebx, ecx, edx, id, known;
  CHECK(__get_cpuid(1, &eax, &ebx, &ecx, &edx));
  id = ebx >> 24;
  // The same processor has the same number in both leaves.
  if (__get_cpuid_count(11, 0, &eax, &ebx, &ecx, &edx) && ebx != 0 && (edx & 0xff) != id) return 0;
  FILE* file = fopen("/proc/cpuinfo", "re");
  CHECK(file);
  char line[4096];
  int found = 0;
  while (fgets(line, sizeof line, file)) found |= sscanf(line, "initial apicid : %u", &known) == 1 && (known & 0xff) == id;
  fclose(file);
  return found;
}

static double cpu_s(void) {
  struct timespec now;
  MUST(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now));
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(void) {
  if (!names_own_processors()) return skipped("cpuid does not name this machine's processors, but those of another one");
  for (int i = 0; i < kChildren; i++) {
    const pid_t child = MUST(fork());
    if (child != 0) continue;
    // Some have been moved to another processor before they ask.
    while (cpu_s() < 0.03 * i) getppid();
    ask(i % 2);
    const double asked = cpu_s();
    while (cpu_s() < asked + 0.2) getppid();
    CHECK(kept[0][0] != 0);
    _exit(0);
  }
  for (int i = 0; i < kChildren; i++) {
    int status;
    MUST(wait(&status));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  puts("ok");
  return 0;
}
