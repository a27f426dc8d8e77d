// args: 100
// Maps N files that it has just made, one after the other, and computes: each checkpoint needs a file that no earlier one needed. It has
// so much mapped that examining it takes some milliseconds.
#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>

enum { kSize = 4096, kMappings = 6000 };

int main(int argc, char** argv) {
  const int files = argc > 1 ? atoi(argv[1]) : 1;
  char bytes[kSize], *mapped = NULL;
  char* const area = mmap(NULL, kMappings * kSize, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(area != MAP_FAILED);
  for (int i = 0; i < kMappings; i += 2) MUST(mprotect(area + i * kSize, kSize, PROT_NONE));
  for (int i = 0; i < files; i++) {
    const int fd = MUST(open("file", O_RDWR | O_CREAT | O_TRUNC, 0600));
    CHECK(getrandom(bytes, sizeof bytes, 0) == sizeof bytes);  // that cannot be compressed
    write_all(fd, bytes, sizeof bytes);
    if (mapped) MUST(munmap(mapped, kSize));
    mapped = mmap(NULL, kSize, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(mapped != MAP_FAILED && memcmp(mapped, bytes, kSize) == 0);
    MUST(close(fd));
    MUST(unlink("file"));
    (void)compute((uint64_t)i, 20);
  }
  return ok("%d files", files);
}
