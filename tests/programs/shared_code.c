// Computes for long in code that is mapped shared: in a second mapping of a memory object, as compilers inside programs make one that
// is not writable; in one that is writable, beside another one; and in a file.
// images: 3
#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { kSize = 65536, kAt = 64 };
#define ROUNDS 60000000ull  // about a tenth of a second

// mov %rdi, %rax; 1: imul $3, %rax, %rax; add %rdi, %rax; dec %rdi; jne 1b; ret
static const unsigned char code[] = {0x48, 0x89, 0xf8, 0x48, 0x6b, 0xc0, 0x03, 0x48, 0x01, 0xf8, 0x48, 0xff, 0xcf, 0x75, 0xf4, 0xc3};

static char* mapped(int file, int protection) {
  char* const memory = mmap(NULL, kSize, protection, MAP_SHARED, file, 0);
  CHECK(memory != MAP_FAILED);
  return memory;
}

static uint64_t call(void* memory, uint64_t rounds) {
  uint64_t (*function)(uint64_t);
  memcpy(&function, &memory, sizeof function);
  return function(rounds);
}

static void* compute_twice(void* memory) {
  return (void*)(uintptr_t)(call(memory, ROUNDS) ^ call(memory, ROUNDS + 1));
}

static void in_two_threads(char* memory) {
  pthread_t threads[2];
  void* results[2];
  for (int i = 0; i < 2; i++) MUST0(pthread_create(&threads[i], NULL, compute_twice, memory));
  for (int i = 0; i < 2; i++) MUST0(pthread_join(threads[i], &results[i]));
  CHECK(results[0] == results[1]);
  NOTE(results[0]);
}

int main(void) {
  const int object = MUST(memfd_create("doublemapper", MFD_CLOEXEC));
  MUST(ftruncate(object, kSize));
  char* const writable = mapped(object, PROT_READ | PROT_WRITE);
  memcpy(writable + kAt, code, sizeof code);
  in_two_threads(mapped(object, PROT_READ | PROT_EXEC) + kAt);

  const uint64_t in_writable = call(mapped(object, PROT_READ | PROT_WRITE | PROT_EXEC) + kAt, ROUNDS);
  NOTE(in_writable);

  const int file = MUST(open("code", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0700));
  CHECK(pwrite(file, code, sizeof code, kAt) == sizeof code);
  MUST(ftruncate(file, kSize));
  MUST(close(file));
  const int again = MUST(open("code", O_RDONLY | O_CLOEXEC));
  CHECK(call(mapped(again, PROT_READ | PROT_EXEC) + kAt, ROUNDS) == in_writable);
  return ok("%llx", (unsigned long long)noted);
}
