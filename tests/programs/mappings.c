// Memory mappings of every kind, with checkpoints between making and checking them.
#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { kPage = 4096, kPages = 16, kSize = kPage * kPages };

static char* map(void* at, size_t size, int flags, int fd, off_t offset) {
  return (char*)MUST(mmap(at, size, PROT_READ | PROT_WRITE, flags, fd, offset));
}

static int made_file(void) {
  char data[kSize];
  fill(data, sizeof data, 9);
  const int fd = MUST(open("mappings.data", O_RDWR | O_CREAT | O_TRUNC, 0600));
  write_all(fd, data, sizeof data);
  return fd;
}

int main(void) {
  char* anonymous = map(NULL, kSize, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  fill(anonymous, kSize, 1);

  const int fd = made_file();
  char* file = map(NULL, kSize, MAP_PRIVATE, fd, 0);
  char* second_half = map(NULL, kSize / 2, MAP_PRIVATE, fd, kSize / 2);
  char wanted[kSize];
  unsigned char resident;
  fill(wanted, kSize, 9);
  MUST(close(fd));
  MUST(unlink("mappings.data"));
  file[kPage] = 'X';  // a private copy: the file keeps its byte

  char* fixed = map(NULL, kSize, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(map(fixed + kPage, kPage, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == fixed + kPage);
  fixed[0] = 'a', fixed[kPage] = 'b', fixed[2 * kPage] = 'c';
  MUST(munmap(fixed + 4 * kPage, 2 * kPage));
  MUST(mprotect(fixed + 8 * kPage, kPage, PROT_NONE));
  MUST(mprotect(fixed, kPage, PROT_READ));

  char* moved = map(NULL, kSize, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  fill(moved, kSize, 2);
  moved = (char*)MUST(mremap(moved, kSize, 64 * kSize, MREMAP_MAYMOVE));
  moved = (char*)MUST(mremap(moved, 64 * kSize, 2 * kSize, MREMAP_MAYMOVE));

  char* discarded = map(NULL, kSize, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  fill(discarded, kSize, 3);
  MUST(madvise(discarded, kPage, MADV_DONTNEED));

  pass_checkpoints();

  CHECK(is_filled(anonymous, kSize, 1));
  CHECK(file[kPage] == 'X' && memcmp(file, wanted, kPage) == 0);
  CHECK(memcmp(file + 2 * kPage, wanted + 2 * kPage, kSize - 2 * kPage) == 0);
  CHECK(memcmp(second_half, wanted + kSize / 2, kSize / 2) == 0);
  CHECK(fixed[0] == 'a' && fixed[kPage] == 'b' && fixed[2 * kPage] == 'c' && fixed[kPage + 1] == 0);
  CHECK(mincore(fixed + 4 * kPage, kPage, &resident) == -1 && errno == ENOMEM);
  CHECK(is_filled(moved, kSize, 2) && moved[kSize] == 0);
  for (int i = 0; i < kPage; i++) CHECK(discarded[i] == 0);
  CHECK(((unsigned char*)discarded)[kPage] == (unsigned char)(3 * 31 + kPage * 7 + (kPage >> 8)));
  MUST(madvise(file, kSize, MADV_DONTNEED));
  CHECK(file[kPage] == wanted[kPage]);
  MUST(munmap(anonymous, kSize));
  return ok("%d bytes", kSize);
}
