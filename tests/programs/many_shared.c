// images: 1
// So many shared mappings, of one file and of many, that a tool which looks through all of them at each call is too slow to end:
// every one is written through, seen by calls, and unmapped or overlaid.
#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { kPage = 4096, kViews = 16000, kFiles = 2000 };

static void map_one_file(void) {
  static unsigned char* views[kViews];
  const int fd = MUST(open("views", O_RDWR | O_CREAT | O_TRUNC, 0600));
  MUST(ftruncate(fd, 2L * kViews * kPage));
  for (long i = 0; i < kViews; i++) {
    // Every second page, or the kernel would make them one mapping.
    views[i] = mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 2 * i * kPage);
    CHECK(views[i] != MAP_FAILED);
    views[i][0] = (unsigned char)i;
  }
  unsigned sum = 0;
  for (long i = 0; i < kViews; i++) {
    unsigned char byte = (unsigned char)(i * 7);
    if (i % 16 == 0) MUST(pwrite(fd, &byte, 1, 2 * i * kPage + 1));
    MUST(pread(fd, &byte, 1, 2 * i * kPage));
    CHECK(byte == (unsigned char)i);
    CHECK(views[i][1] == (i % 16 == 0 ? (unsigned char)(i * 7) : 0));
    sum = sum * 31 + views[i][0] + views[i][1];
  }
  for (long i = 0; i < kViews; i++) {
    if (i % 3 == 0) {
      CHECK(mmap(views[i], kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == views[i]);
    } else {
      MUST(munmap(views[i], kPage));
    }
  }
  const unsigned char byte = 1;
  MUST(pwrite(fd, &byte, 1, 0));
  CHECK(views[0][0] == 0);
  MUST(close(fd));
  NOTE(sum);
}

static void map_many_files(void) {
  static unsigned char* views[kFiles];
  for (int i = 0; i < kFiles; i++) {
    char name[32];
    snprintf(name, sizeof name, "file%d", i);
    const int fd = MUST(open(name, O_RDWR | O_CREAT | O_TRUNC, 0600));
    MUST(ftruncate(fd, kPage));
    views[i] = mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(views[i] != MAP_FAILED);
    views[i][i] = 1;
    MUST(pwrite(fd, "changed", 7, 10));
    CHECK(memcmp(views[i] + 10, "changed", 7) == 0 || (i >= 10 && i < 17));
    MUST(close(fd));
    MUST(unlink(name));
  }
  unsigned sum = 0;
  for (int i = 0; i < kFiles; i++) {
    for (int at = 0; at < kPage; at++) sum += views[i][at];
    MUST(munmap(views[i], kPage));
  }
  NOTE(sum);
}

int main(void) {
  map_one_file();
  map_many_files();
  return ok("%d views of one file, %d files", kViews, kFiles);
}
