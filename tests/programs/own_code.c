// A program finds the bytes of its file in its own code, however often it has made calls there; and the kernel shows it the unchanged
// code of libraries.
// images: 1
#include "test.h"

#include <cpuid.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <x86intrin.h>

enum { kCalls = 20, kBytes = 96 };

static __attribute__((noinline, aligned(128))) long call(void) {
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_getppid) : "rcx", "r11", "memory");
  return result;
}

static __attribute__((noinline, aligned(128))) uint64_t count(void) { return __rdtsc(); }

static __attribute__((noinline, aligned(128))) unsigned ask(void) {
  unsigned a, b, c, d;
  __cpuid(0, a, b, c, d);
  return a;
}

// What the file that is mapped at this address holds there.
static void read_file(const void* address, unsigned char* bytes) {
  FILE* const maps = fopen("/proc/self/maps", "re");
  CHECK(maps);
  char line[512], name[256];
  unsigned long start, end, offset;
  int found = 0;
  while (!found && fgets(line, sizeof line, maps)) {
    if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %255s", &start, &end, &offset, name) != 4) continue;
    if ((uintptr_t)address < start || (uintptr_t)address >= end) continue;
    const int file = MUST(open(name, O_RDONLY | O_CLOEXEC));
    CHECK(pread(file, bytes, kBytes, (off_t)((uintptr_t)address - start + offset)) == kBytes);
    close(file);
    found = 1;
  }
  CHECK(found);
  fclose(maps);
}

// Whether the machine has this flag. If it cannot trap cpuid, or, as paravirtualized ones without fsgsbase, the counter, a recording replaces
// the instructions by others.
static int has_flag(const char* flag) {
  FILE* const info = fopen("/proc/cpuinfo", "re");
  CHECK(info);
  static char line[16384];
  int has = 0;
  while (!has && fgets(line, sizeof line, info)) has = strstr(line, flag) != NULL;
  fclose(info);
  return has;
}

int main(void) {
  const void* const own[] = {(void*)call, (void*)count, (void*)ask};
  const int functions = !has_flag(" fsgsbase ") ? 1 : !has_flag(" cpuid_fault ") ? 2 : 3;
  for (int i = 0; i < kCalls; ++i) {
    CHECK(call() == getppid() && ask() > 0 && count() > 0);
    for (int k = 0; k < functions; ++k) {
      unsigned char expected[kBytes];
      read_file(own[k], expected);
      CHECK(memcmp(own[k], expected, kBytes) == 0);
      note_bytes(own[k], kBytes);
    }
    if (i == kCalls / 2) pass_checkpoints();
  }
  // getppid was called as often, in a library.
  const void* const library = dlsym(RTLD_DEFAULT, "getppid");
  CHECK(library);
  unsigned char expected[kBytes], found[kBytes];
  read_file(library, expected);
  const struct iovec to = {found, kBytes}, from = {(void*)library, kBytes};
  CHECK(process_vm_readv(getpid(), &to, 1, &from, 1, 0) == kBytes);
  CHECK(memcmp(found, expected, kBytes) == 0);
  const int memory = MUST(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  memset(found, 0, sizeof found);
  CHECK(pread(memory, found, kBytes, (off_t)(uintptr_t)library) == kBytes);
  CHECK(memcmp(found, expected, kBytes) == 0);
  memset(found, 0, sizeof found);
  MUST(lseek(memory, (off_t)(uintptr_t)library, SEEK_SET));
  const struct iovec parts[] = {{found, 7}, {found + 7, kBytes - 7}};
  CHECK(readv(memory, parts, 2) == kBytes);
  CHECK(memcmp(found, expected, kBytes) == 0);
  return ok("%016llx", (unsigned long long)noted);
}
