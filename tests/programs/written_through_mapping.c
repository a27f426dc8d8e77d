// A file is mapped privately after each of several writes through a shared mapping, of which its times show none. What the views show is noted.
#include "test.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

enum { kSize = 4096 };

static struct timespec changed(int file) {
  struct stat info;
  MUST(fstat(file, &info));
  return info.st_ctim;
}

int main(void) {
  const int file = MUST(memfd_create("mapped", 0));
  MUST(ftruncate(file, kSize));
  char* const shared = MUST(mmap(NULL, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  memset(shared, 'a', kSize);  // the kernel sees only the first write to a page
  const struct timespec before = changed(file), settled = {2, 100000000};
  MUST(nanosleep(&settled, NULL));  // afterwards, a call that writes would show another time in any file system
  for (char with = 'b'; with < 'e'; with++) {
    memset(shared, with, kSize);
    const char* const view = MUST(mmap(NULL, kSize, PROT_READ, MAP_PRIVATE, file, 0));
    CHECK(view[kSize / 2] == with);
    NOTE(view[kSize / 2]);
    MUST(munmap((void*)view, kSize));
    const struct timespec now = changed(file);
    CHECK(now.tv_sec == before.tv_sec && now.tv_nsec == before.tv_nsec);
  }
  return ok("%016llx", (unsigned long long)noted);
}
