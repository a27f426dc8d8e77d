// rdtsc and rdtscp with prefixes, which the processor ignores.
// needs: rdtsc trapping
#include "test.h"

#define COUNTER(...)                                                                        \
  ({                                                                                        \
    uint64_t low_, high_;                                                                   \
    asm volatile(".byte " #__VA_ARGS__ : "=a"(low_), "=d"(high_) : "c"(0) : "memory"); \
    high_ << 32 | low_;                                                                     \
  })
#define COUNTER_AND_PROCESSOR(...)                                                     \
  ({                                                                                   \
    uint64_t low_, high_, processor_;                                                  \
    asm volatile(".byte " #__VA_ARGS__ : "=a"(low_), "=d"(high_), "=c"(processor_)); \
    high_ << 32 | low_;                                                                \
  })

int main(void) {
  uint64_t before = 0;
  for (int i = 0; i < 200; i++) {
    const uint64_t found[] = {
        COUNTER(0x0f, 0x31),
        COUNTER(0x48, 0x0f, 0x31),
        COUNTER(0xf3, 0x0f, 0x31),
        COUNTER(0x66, 0x67, 0xf2, 0x2e, 0x4f, 0x0f, 0x31),
        COUNTER_AND_PROCESSOR(0x0f, 0x01, 0xf9),
        COUNTER_AND_PROCESSOR(0x48, 0x0f, 0x01, 0xf9),
    };
    for (size_t k = 0; k < sizeof found / sizeof *found; before = found[k++]) CHECK(found[k] >= before);
    NOTE(found);
  }
  return ok("%016lx", noted);
}
