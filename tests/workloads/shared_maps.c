// Mappings for single tests: `written FILE` maps a file for reading, says so, waits until somebody opens the FIFO
// "go", and prints what it sees then; `viewed FILE` does the same with a private mapping; `both FILE` has a private mapping of a file
// that it writes through a shared one; `shares FILE` is `written` with a mapping for writing; `writes MIB` writes 500 times into a file
// of that size that it has mapped; `sparse GIB`
// touches 16 pages of a file of that size and of as much nameless memory.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char* shared(int fd, size_t size, int protection) {
  const int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  char* at = mmap(NULL, size, protection, flags, fd, 0);
  if (at == MAP_FAILED) perror("mmap"), exit(1);
  return at;
}

static int new_file(size_t size) {
  const int fd = open("object", O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || ftruncate(fd, (off_t)size) != 0) perror("object"), exit(1);
  return fd;
}

static int written(const char* name, int protection, int flags) {
  const int fd = open(name, protection & PROT_WRITE ? O_RDWR : O_RDONLY);
  const char* view = mmap(NULL, 4096, protection, flags, fd, 0);
  if (view == MAP_FAILED) return perror("mmap"), 1;
  printf("mapped %c\n", view[0]);
  fflush(stdout);
  char byte;
  const int go = open("go", O_RDONLY);
  if (read(go, &byte, 1) != 1) return 1;
  printf("ok sees %c\n", view[0]);
  return 0;
}

static int both(const char* name) {
  const int fd = open(name, O_RDWR);
  char* writable = shared(fd, 4096, PROT_READ | PROT_WRITE);
  const volatile char* view = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
  if (view == MAP_FAILED) return perror("mmap"), 1;
  writable[0] = 'b';
  printf("ok sees %c\n", view[0]);
  return 0;
}

static int writes(size_t size) {
  enum { kPage = 4096 };
  const int fd = new_file(size);
  const char* view = shared(fd, size, PROT_READ | PROT_WRITE);
  char page[kPage];
  for (size_t i = 0; i < 500; i++) {
    memset(page, (int)i, sizeof page);
    const size_t at = i * kPage % size;
    if (pwrite(fd, page, sizeof page, (off_t)at) != kPage || view[at + 7] != (char)i) return printf("WRONG at %zu\n", i), 1;
  }
  return puts("ok"), 0;
}

static int sparse(size_t size) {
  const int fd = new_file(size);
  char* of_file = shared(fd, size, PROT_READ | PROT_WRITE);
  char* nameless = shared(-1, size, PROT_READ | PROT_WRITE);
  for (size_t at = 0; at < size; at += size / 16) of_file[at] = nameless[at] = 1;
  for (long i = 0; i < 400; i++) {
    for (volatile long k = 0; k < 1000000; k++) continue;
    (void)!getppid();
  }
  struct stat info;
  if (fstat(fd, &info) != 0 || info.st_blocks > 16 * 64) return printf("WRONG: %ld blocks\n", (long)info.st_blocks), 1;
  return puts("ok"), 0;
}

int main(int count, char** words) {
  if (count != 3) return 2;
  if (!strcmp(words[1], "written")) return written(words[2], PROT_READ, MAP_SHARED);
  if (!strcmp(words[1], "shares")) return written(words[2], PROT_READ | PROT_WRITE, MAP_SHARED);
  if (!strcmp(words[1], "viewed")) return written(words[2], PROT_READ, MAP_PRIVATE);
  if (!strcmp(words[1], "both")) return both(words[2]);
  if (!strcmp(words[1], "writes")) return writes(strtoul(words[2], NULL, 0) << 20);
  if (!strcmp(words[1], "sparse")) return sparse(strtoul(words[2], NULL, 0) << 30);
  return 2;
}
