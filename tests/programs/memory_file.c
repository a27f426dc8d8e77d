// What a program writes into its own memory through /proc/self/mem is there: data, and pages that it may not write to.
// images: 1
#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>

static char target[64], vector_target[32];

// By a name that does not say what it is, after many files were opened.
static void open_from_its_directory(void) {
  static int counter;
  for (int i = 0; i < 200; i++) close(MUST(open("/dev/null", O_RDONLY)));
  const int here = MUST(open(".", O_RDONLY)), directory = MUST(open("/proc/self", O_PATH | O_DIRECTORY));
  MUST(chdir("/proc/self"));
  const int memories[] = {MUST(open("mem", O_RDWR)), MUST(openat(directory, "mem", O_RDWR)), MUST(open("task/../mem", O_RDWR))};
  MUST(fchdir(here));
  for (int i = 0; i < 60; i++) {
    CHECK(pwrite(memories[i % 3], &i, sizeof i, (off_t)(uintptr_t)&counter) == sizeof i);
    CHECK(*(volatile int*)&counter == i);
    NOTE(counter);
  }
}

int main(void) {
  open_from_its_directory();
  const int memory = MUST(open("/proc/self/mem", O_RDWR));
  CHECK(pwrite(memory, "placed", 6, (off_t)(uintptr_t)target) == 6);
  CHECK(memcmp(target, "placed", 6) == 0);
  MUST(lseek(memory, (off_t)(uintptr_t)(target + 20), SEEK_SET));
  CHECK(write(memory, "at its place", 12) == 12 && write(memory, "more", 4) == 4);
  CHECK(memcmp(target + 20, "at its placemore", 16) == 0);
  struct iovec parts[] = {{"in ", 3}, {"pieces", 6}};
  CHECK(pwritev(memory, parts, 2, (off_t)(uintptr_t)vector_target) == 9);
  CHECK(memcmp(vector_target, "in pieces", 9) == 0);
  char* const page = MUST(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  CHECK(pwrite(memory, "protected", 9, (off_t)(uintptr_t)page) == 9);
  pass_checkpoints();
  CHECK(memcmp(page, "protected", 9) == 0);
  note_bytes(page, 4096);
  NOTE(target), NOTE(vector_target);
  char copy[6];
  CHECK(pread(memory, copy, sizeof copy, (off_t)(uintptr_t)target) == 6 && memcmp(copy, "placed", 6) == 0);
  return ok("%016llx", (unsigned long long)noted);
}
