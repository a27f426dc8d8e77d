// Threads run 32-bit code, as in Wine: one waits there for another one, without a call, and others compute for longer
// than a checkpoint period. images: 2
#include <sys/mman.h>

#include "test.h"

enum { kSize = 1 << 20, kReturn = 512, kFlag = 8192 };

static unsigned char* code;
static struct {
  uint32_t offset;
  uint16_t selector;
} __attribute__((packed)) * target;

static uint32_t run(int start, uint32_t rounds) {
  target->offset = (uint32_t)(uintptr_t)(code + start);
  target->selector = 0x23;
  uint32_t result;
  __asm__ volatile(
      "mov %[rounds], %%ecx\n"
      "xor %%eax, %%eax\n"
      "lea 1f(%%rip), %%rdx\n"
      "push %%rdx\n"
      "ljmp *(%[target])\n"
      "1: mov %%eax, %[result]\n"
      "xor %%edx, %%edx\n"
      "mov %%edx, %%ds\n"
      : [result] "=r"(result)
      : [rounds] "r"(rounds), [target] "r"(target)
      : "rax", "rcx", "rdx", "rsi", "rdi", "memory", "cc");
  return result;
}

static void* waits(void* unused) {
  run(0, 0);
  return unused;
}

static void* computes(void* rounds) { return (void*)(uintptr_t)run(256, (uint32_t)(uintptr_t)rounds); }

static void* low_memory(int protection) {
  void* memory = mmap(NULL, kSize, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  CHECK(memory != MAP_FAILED);
  return memory;
}

static pthread_t start(void* (*body)(void*), uint32_t argument) {
  pthread_attr_t attributes;
  MUST0(pthread_attr_init(&attributes));
  MUST0(pthread_attr_setstack(&attributes, low_memory(PROT_READ | PROT_WRITE), kSize));
  pthread_t thread;
  MUST0(pthread_create(&thread, &attributes, body, (void*)(uintptr_t)argument));
  return thread;
}

// Puts code there that goes on at the `ret` of 64-bit code.
static void put(int at, const unsigned char* bytes, size_t size) {
  const uint32_t back = (uint32_t)(uintptr_t)(code + kReturn);
  memcpy(code + at, bytes, size);
  code[at + (int)size] = 0xea;  // ljmp
  memcpy(code + at + size + 1, &back, sizeof back);
  memcpy(code + at + size + 5, (unsigned char[]){0x33, 0}, 2);
}

int main(void) {
  code = low_memory(PROT_READ | PROT_WRITE | PROT_EXEC);
  target = (void*)(code + 1024);
  code[kReturn] = 0xc3;
  // mov $0x2b, %eax; mov %eax, %ds; 1: cmpb $0, flag; je 1b
  unsigned char wait[] = {0xb8, 0x2b, 0, 0, 0, 0x8e, 0xd8, 0x80, 0x3d, 0, 0, 0, 0, 0, 0x74, 0xf7};
  const uint32_t flag = (uint32_t)(uintptr_t)(code + kFlag);
  memcpy(wait + 9, &flag, sizeof flag);
  put(0, wait, sizeof wait);
  // mov $0x2b, %eax; mov %eax, %ds; mov %ecx, %edx; xor %edi, %edi
  // 1: mov $SIZE, %ecx; mov $code, %esi; rep lodsb; imul $3, %edi; add %edx, %edi; dec %edx; jnz 1b; mov %edi, %eax
  unsigned char compute[] = {0xb8, 0x2b, 0,    0, 0,    0x8e, 0xd8, 0x89, 0xca, 0x31, 0xff,
                             0xb9, 0,    0,    0, 0,    0xbe, 0,    0,    0,    0,    0xf3,
                             0xac, 0x6b, 0xff, 3, 0x01, 0xd7, 0x4a, 0x75, 0xec, 0x89, 0xf8};
  const uint32_t size = kSize, from = (uint32_t)(uintptr_t)code;
  memcpy(compute + 12, &size, sizeof size);
  memcpy(compute + 17, &from, sizeof from);
  put(256, compute, sizeof compute);

  const pthread_t waiter = start(waits, 0);
  usleep(50000);
  __atomic_store_n(code + kFlag, 1, __ATOMIC_SEQ_CST);
  MUST0(pthread_join(waiter, NULL));

  const uint32_t rounds = 1000;
  void* sum = NULL;
  MUST0(pthread_join(start(computes, rounds), &sum));
  uint32_t expected = 0;
  for (uint32_t i = rounds; i > 0; i--) expected = expected * 3 + i;
  CHECK((uint32_t)(uintptr_t)sum == expected);
  return ok("%x", expected);
}
