// The time stamp counter, read by both instructions, in a loop and across checkpoints.
#include "test.h"

#include <x86intrin.h>

int main(void) {
  unsigned aux;
  uint64_t previous = __rdtsc(), digest = 0;
  for (int i = 0; i < 1000; i++) {
    const uint64_t at = i % 2 ? __rdtsc() : __rdtscp(&aux);
    CHECK(at >= previous);
    digest = digest * 31 + (at - previous);
    previous = at;
  }
  pass_checkpoints();
  CHECK(__rdtsc() > previous);
  return ok("digest %016lx", digest);
}
