// CPUID gives the same answer each time, and the features that it announces work.
#include "test.h"

#include <cpuid.h>
#include <immintrin.h>

__attribute__((target("rdrnd"))) static int random_step(unsigned long long* value) { return _rdrand64_step(value); }

int main(void) {
  unsigned a, b, c, d, a2, b2, c2, d2;
  char vendor[13] = {0};
  CHECK(__get_cpuid(0, &a, &b, &c, &d) && a >= 1);
  memcpy(vendor, &b, 4), memcpy(vendor + 4, &d, 4), memcpy(vendor + 8, &c, 4);
  for (int i = 0; i < 50; i++) {
    CHECK(__get_cpuid(0, &a2, &b2, &c2, &d2));
    CHECK(a2 == a && b2 == b && c2 == c && d2 == d);
  }
  CHECK(__get_cpuid(1, &a, &b, &c, &d) && (d & bit_SSE2));
  unsigned long long value = 0;
  if (c & bit_RDRND) {
    int good = 0;
    for (int i = 0; i < 100 && !good; i++) good = random_step(&value);
    CHECK(good);
  }
  pass_checkpoints();
  CHECK(__get_cpuid(1, &a2, &b2, &c2, &d2) && a2 == a && (c & bit_RDRND) == (c2 & bit_RDRND));
  return ok("%s rdrand %llx", vendor, value);
}
