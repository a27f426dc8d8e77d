// Maps a file shared and only to be read, as the C library does with gconv-modules.cache, and looks at it again and again
// between stretches of computing.
// period: 20ms
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>

#include "test.h"

enum { kBytes = 27028, kStretches = 40 };

static unsigned sum_of(const volatile unsigned char* bytes) {
  unsigned sum = 0;
  for (int i = 0; i < kBytes; i++) sum += bytes[i];
  return sum;
}

int main(void) {
  unsigned char content[kBytes];
  for (int i = 0; i < kBytes; i++) content[i] = (unsigned char)(i * 7);
  const int written = MUST(open("viewed", O_WRONLY | O_CREAT | O_TRUNC, 0600));
  write_all(written, content, kBytes);
  MUST(close(written));
  const int file = MUST(open("viewed", O_RDONLY));
  const unsigned char* const view = MUST(mmap(NULL, kBytes, PROT_READ, MAP_SHARED, file, 0));
  MUST(close(file));
  uint64_t value = 0x5eed;
  for (int i = 0; i < kStretches; i++) {
    value = compute(value, 150);
    MUST(nanosleep(&(struct timespec){0, 1000}, NULL));
    CHECK(sum_of(view) == sum_of(content));
  }
  return ok("%llu", (unsigned long long)value);
}
