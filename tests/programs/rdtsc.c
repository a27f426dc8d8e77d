// The time stamp counter, read by both instructions, in a loop and across checkpoints, with what compilers and people put after it:
// fences, vector instructions, returns.
#include "test.h"

#include <x86intrin.h>

// The low half only, by a function that does nothing else.
uint32_t read_low(void);
asm(".p2align 4\n"
    ".type read_low, @function\n"
    "read_low: rdtsc\n"
    "ret\n"
    ".p2align 4, 0xcc\n");

static uint64_t read_fenced(void) {
  _mm_lfence();
  const uint64_t now = __rdtsc();
  _mm_lfence();
  return now;
}

static uint64_t read_beside_vectors(void) {
  uint32_t low, high;
  asm volatile("rdtsc\n pxor %%xmm7, %%xmm7\n pushq %%rax\n popq %%rax" : "=a"(low), "=d"(high) : : "xmm7");
  return (uint64_t)high << 32 | low;
}

int main(void) {
  unsigned aux;
  uint64_t previous = __rdtsc(), digest = 0;
  for (int i = 0; i < 1000; i++) {
    const uint64_t at = i % 2 ? __rdtsc() : __rdtscp(&aux);
    CHECK(at >= previous);
    digest = digest * 31 + (at - previous);
    previous = at;
  }
  // More than a ring holds between two stops.
  for (int i = 0; i < 12000; i++) {
    const uint64_t at = i % 2 ? read_fenced() : read_beside_vectors();
    CHECK(at >= previous);
    digest = (digest * 31 + (at - previous)) * 31 + read_low();
    previous = at;
  }
  pass_checkpoints();
  CHECK(__rdtsc() > previous);
  return ok("digest %016lx", digest);
}
