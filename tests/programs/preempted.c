// Computes for long without a system call, in all forms in which a checkpoint may find the program: loops too tight for a jump, loops
// with their counter in memory, recursion, vectors, repeated string instructions, a handler that computes, and code around system calls
// and right after them.
// images: 4
#include "test.h"

static uint64_t volatile counter;
static uint64_t in_handler;

// Each takes about a fifth of a second.
#define ROUNDS 100000000ull

static uint64_t tight(void) {
  uint64_t n = ROUNDS * 2;
  __asm__ volatile("1: dec %0; jnz 1b" : "+r"(n));
  return n;
}

static uint64_t registers(void) {
  uint64_t x = 88172645463325252ull;
  for (uint64_t i = 0; i < ROUNDS; i++) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
  }
  return x;
}

// The registers are the same each time.
static uint64_t in_memory(void) {
  for (counter = 0; counter < ROUNDS;) counter++;
  return counter;
}

static uint64_t __attribute__((noinline)) fibonacci(unsigned n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

static double vectors(void) {
  static float a[4096], b[4096];
  for (int i = 0; i < 4096; i++) a[i] = (float)i / 7, b[i] = 0;
  for (int round = 0; round < 40000; round++) {
    for (int i = 0; i < 4096; i++) b[i] = b[i] * 0.5f + a[i] * (float)(round % 3);
  }
  double sum = 0;
  for (int i = 0; i < 4096; i++) sum += b[i];
  return sum;
}

static uint64_t strings(void) {
  enum { kSize = 8 << 20 };
  unsigned char* bytes = malloc(kSize);
  uint64_t sum = 0;
  for (int round = 0; round < 100; round++) {
    void* to = bytes;
    uint64_t count = kSize;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(round) : "memory");
    sum += bytes[round * 1000];
  }
  free(bytes);
  return sum;
}

static double old_floating_point(void) {
  long double x = 1;
  for (uint64_t i = 1; i < ROUNDS / 10; i++) x += 1.0L / ((long double)i * (long double)i);
  return (double)x;
}

// A system call leaves values in two registers, which are occasionally used much later.
static uint64_t behind_calls(void) {
  const uint64_t parent = (uint64_t)getppid();
  uint64_t x = 0;
  for (int call = 1; call <= 4000; call++) {
    uint64_t number = SYS_getppid, turns = call % 1000 ? 1 : ROUNDS, address, left;
    __asm__ volatile(
        "syscall\n"
        "0: lea 1(%[x], %[x], 2), %[x]\n"
        "1: lea 1(%[x], %[x], 2), %[x]\n"
        "dec %[turns]\n"
        "jnz 1b\n"
        "lea 0b(%%rip), %[address]\n"
        "mov %%rcx, %[left]\n"
        : "+a"(number), [x] "+r"(x), [turns] "+r"(turns), [address] "=&r"(address), [left] "=&r"(left)
        :
        : "rcx", "r11", "memory");
    CHECK(number == parent);
    CHECK(left == address);
  }
  return x;
}

static void handler(int signal) {
  (void)signal;
  in_handler = registers();
}

int main(int argc, char** argv) {
  for (int more = argc > 1 ? atoi(argv[1]) : 0; more > 0; more--) CHECK(registers() && tight() == 0);
  CHECK(tight() == 0);
  const uint64_t random = registers();
  CHECK(in_memory() == ROUNDS);
  const uint64_t sequence = fibonacci(38);
  CHECK(sequence == 39088169);
  const double sum = vectors();
  const uint64_t filled = strings();
  CHECK(filled == 4950);
  const double series = old_floating_point();
  CHECK(series > 2.6449 && series < 2.645);
  const uint64_t behind = behind_calls();
  signal(SIGUSR1, handler);
  CHECK(raise(SIGUSR1) == 0);
  CHECK(in_handler == random);
  NOTE(random);
  NOTE(behind);
  NOTE(sum);
  return ok("%g", series);
}
