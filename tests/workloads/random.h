// Random numbers, the same every time from the same seed (xorshift64*).
#pragma once

#include <stdint.h>

// `state`: not 0.
static inline uint64_t next_random(uint64_t* state) {
  *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
  return *state * 0x2545f4914f6cdd1dULL;
}

static inline int random_below(uint64_t* state, int limit) {
  return (int)((next_random(state) >> 33) % (uint64_t)limit);
}
