// A long series of equal reads. The call after it differs from them only in its result.
#include <fcntl.h>

#include "test.h"

enum { kSize = 65536, kReads = 500, kRest = 10 };

int main(void) {
  static char wrote[kSize], found[kSize];
  memset(wrote, 1, sizeof wrote);
  const int out = MUST(open("series_of_reads.data", O_WRONLY | O_CREAT | O_TRUNC, 0600));
  for (int i = 0; i < kReads; i++) write_all(out, wrote, sizeof wrote);
  write_all(out, wrote, kRest);
  const int in = MUST(open("series_of_reads.data", O_RDONLY));
  for (volatile int i = 0; i < kReads; i++) {  // in memory: the registers of all calls are the same
    CHECK(read(in, found, sizeof found) == kSize);
    CHECK(memcmp(found, wrote, sizeof found) == 0);
  }
  CHECK(read(in, found, sizeof found) == kRest);
  CHECK(read(in, found, sizeof found) == 0);
  MUST(unlink("series_of_reads.data"));
  return ok("%d reads", kReads);
}
