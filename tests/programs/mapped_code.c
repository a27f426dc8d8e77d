// Code that is mapped, run and unmapped again and again, as by dlopen and dlclose: more sites than one page of trampolines holds, a site
// that no jump can replace, code that is moved, and a file that is overwritten between two mappings.
#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { kFunctions = 300, kSize = 16, kLength = 8192, kRounds = 40, kFixedAt = kFunctions * kSize };

// mov $39 (getpid), %eax; syscall; add $0, %eax; ret
static const unsigned char plain[] = {0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0x83, 0xc0, 0, 0xc3};
// push $39; pop %rax; syscall; je to the ret; nop; ret
static const unsigned char fixed[] = {0x6a, 39, 0x58, 0x0f, 0x05, 0x74, 1, 0x90, 0xc3};

static int call(const unsigned char* code, int at) {
  int (*function)(void);
  const void* address = code + at;
  memcpy(&function, &address, sizeof function);
  return function();
}

static void run(int fd, int added, int calls) {
  unsigned char* code = mmap(NULL, kLength, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
  CHECK(code != MAP_FAILED);
  for (int i = 0; i < kFunctions; i++) {
    for (int k = 0; k < calls; k++) CHECK(call(code, i * kSize) == getpid() + (i % 2 ? added : 0));
  }
  CHECK(call(code, kFixedAt) == getpid());
  MUST(munmap(code, kLength));
}

// Moves code that has run, moves it back, and unmaps a part of it by the same call.
static void move(int fd) {
  unsigned char* const code = mmap(NULL, kLength, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
  unsigned char* const far = mmap((void*)0x600000000000, kLength, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(code != MAP_FAILED && far != MAP_FAILED);
  for (int i = 0; i < 10; i++) CHECK(call(code, 0) == getpid() && call(code, kSize) == getpid());
  CHECK(mremap(code, kLength, kLength, MREMAP_MAYMOVE | MREMAP_FIXED, far) == far);
  for (int i = 0; i < 10; i++) CHECK(call(far, 0) == getpid() && call(far, kSize) == getpid());
  CHECK(mremap(far, kLength, kLength, MREMAP_MAYMOVE | MREMAP_FIXED, code) == code);
  for (int i = 0; i < 10; i++) CHECK(call(code, 0) == getpid() && call(code, kSize) == getpid());
  CHECK(mremap(code, kLength, kLength / 2, 0) == code);  // it stays
  for (int i = 0; i < 10; i++) CHECK(call(code, 0) == getpid() && call(code, kSize) == getpid());
  MUST(munmap(code, kLength / 2));
}

int main(void) {
  unsigned char file[kLength];
  memset(file, 0xcc, sizeof file);
  for (int i = 0; i < kFunctions; i++) memcpy(file + i * kSize, plain, sizeof plain);
  memcpy(file + kFixedAt, fixed, sizeof fixed);
  const int fd = MUST(open("code", O_RDWR | O_CREAT | O_TRUNC, 0600));
  CHECK(pwrite(fd, file, sizeof file, 0) == sizeof file);
  for (int round = 0; round < kRounds; round++) run(fd, 0, round ? 1 : 2);
  move(fd);
  // Every second function now adds another number.
  for (int added = 1; added < 4; added++) {
    for (int i = 1; i < kFunctions; i += 2) file[i * kSize + 9] = (unsigned char)added;
    CHECK(pwrite(fd, file, sizeof file, 0) == sizeof file);
    for (int round = 0; round < 3; round++) run(fd, added, 1);
  }
  pass_checkpoints();
  run(fd, 3, 1);
  return ok("%d rounds", kRounds);
}
