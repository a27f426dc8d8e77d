// What lies beyond the end of a mapped file in its last page, memory that is mapped once more and longer than it was (mremap(2)), and
// writes at a position that another process moves.
#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum { kSize = 65536, kPage = 4096, kWrites = 300 };

static char* map(int file, size_t size, int protection) {
  char* const made = mmap(NULL, size, protection, MAP_SHARED, file, 0);
  CHECK(made != MAP_FAILED);
  return made;
}

static void keep_tail(void) {
  const int file = MUST(memfd_create("tail", 0));
  MUST(ftruncate(file, 100));
  char* const shown = map(file, kPage, PROT_READ | PROT_WRITE);
  shown[200] = 'q';
  CHECK(write(file, "x", 1) == 1);
  NOTE(shown[0]);
  NOTE(shown[200]);
  map(file, kPage, PROT_READ);
  NOTE(shown[200]);
  MUST(ftruncate(file, 50));
  NOTE(shown[200]);
  MUST(close(file));
}

static void map_again(void) {
  const int file = MUST(memfd_create("again", 0));
  char* const filled = malloc(kSize);
  memset(filled, 'm', kSize);
  CHECK(pwrite(file, filled, kSize, 0) == kSize);
  char* const first = map(file, kPage, PROT_READ | PROT_WRITE);
  const char* const second = mremap(first, 0, kSize, MREMAP_MAYMOVE);
  CHECK(second != MAP_FAILED && second[8000] == 'm' && second[kSize - 1] == 'm');
  NOTE(second[8000]);
  free(filled);
  MUST(close(file));
}

// The kernel decides which of the two places a write goes to.
static void share_position(void) {
  char name[] = "/tmp/shared_tails.XXXXXX";
  const int file = MUST(mkstemp(name));
  MUST(unlink(name));
  MUST(ftruncate(file, kSize));
  const pid_t mover = MUST(fork());
  if (mover == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) lseek(file, kPage, SEEK_SET);
  }
  const char* const shown = map(file, kSize, PROT_READ);
  const int nowhere = MUST(open("/dev/null", O_WRONLY));
  for (long i = 1; i <= kWrites; i++) {
    MUST(lseek(file, 0, SEEK_SET));
    CHECK(write(file, &i, sizeof i) == sizeof i);
    const long places[] = {*(const volatile long*)shown, *(const volatile long*)(shown + kPage)};
    CHECK(places[0] == i || places[1] == i);
    CHECK(write(nowhere, places, sizeof places) == sizeof places);  // a replay compares it
  }
  MUST(kill(mover, SIGKILL));
  CHECK(waitpid(mover, NULL, 0) == mover);
}

int main(void) {
  keep_tail();
  map_again();
  share_position();
  return ok("noted %llx", (unsigned long long)noted);
}
