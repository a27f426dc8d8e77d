// Advice and locks on memory. Some advice changes the contents, or what a child finds; this is checked after a fork and after
// checkpoints.
#include "test.h"

#include <sys/mman.h>

enum { kPage = 4096, kSize = 16 * kPage };

static unsigned char* mapped(int flags) {
  unsigned char* memory = mmap(NULL, kSize, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  fill(memory, kSize, 9);
  return memory;
}

static int is_zero(const unsigned char* from, size_t size) {
  for (size_t i = 0; i < size; i++) {
    if (from[i]) return 0;
  }
  return 1;
}

// None of these changes the contents.
static void harmless(void) {
  static const int advice[] = {MADV_NORMAL,   MADV_RANDOM,      MADV_SEQUENTIAL, MADV_WILLNEED, MADV_MERGEABLE,     MADV_UNMERGEABLE,
                               MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTDUMP,   MADV_DODUMP,   MADV_COLD,          MADV_PAGEOUT,
                               22,            23,               25};  // MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_COLLAPSE
  unsigned char* memory = mapped(MAP_PRIVATE);
  for (size_t i = 0; i < sizeof advice / sizeof *advice; i++) {
    MAY(syscall(SYS_madvise, memory, kSize, advice[i]), EINVAL, EBUSY, EAGAIN, ENOMEM);
    CHECK(is_filled(memory, kSize, 9));
  }
}

static void across_fork(void) {
  unsigned char *kept = mapped(MAP_PRIVATE), *wiped = mapped(MAP_PRIVATE), *absent = mapped(MAP_PRIVATE);
  const int wipes = MAY(madvise(wiped, kSize, MADV_WIPEONFORK), EINVAL), leaves = MAY(madvise(absent, kSize, MADV_DONTFORK), EINVAL);
  if (wipes) MUST(madvise(kept, kSize, MADV_WIPEONFORK));
  MUST(madvise(kept, kSize, MADV_KEEPONFORK));
  pass_checkpoints();
  CHECK(is_filled(kept, kSize, 9) && is_filled(wiped, kSize, 9) && is_filled(absent, kSize, 9));
  const pid_t child = MUST(fork());
  if (child == 0) {
    unsigned char present;
    CHECK(is_filled(kept, kSize, 9) && (wipes ? is_zero(wiped, kSize) : is_filled(wiped, kSize, 9)));
    CHECK((mincore(absent, kPage, &present) == 0) == !leaves);
    _exit(3);
  }
  wait_for_exit(child, 3);
  MUST(madvise(absent, kSize, MADV_DOFORK));
  const pid_t second = MUST(fork());
  if (second == 0) _exit(is_filled(absent, kSize, 9) ? 4 : 5);
  wait_for_exit(second, 4);
}

static void emptied(void) {
  unsigned char* memory = mapped(MAP_PRIVATE);
  MUST(madvise(memory + kPage, 2 * kPage, MADV_DONTNEED));
  CHECK(is_zero(memory + kPage, 2 * kPage) && memory[3 * kPage] != 0);
  memset(memory, 1, kSize);
  if (MAY(mlock(memory, kSize), ENOMEM)) FAILS(madvise(memory, kPage, MADV_DONTNEED), EINVAL);
  if (MAY(madvise(memory, kPage, 24 /* MADV_DONTNEED_LOCKED */), EINVAL)) CHECK(is_zero(memory, kPage));
  MUST(munlock(memory, kSize));
  CHECK(memory[kPage] == 1);
  unsigned char* shared = mapped(MAP_SHARED);
  MUST(madvise(shared, kPage, MADV_REMOVE));
  CHECK(is_zero(shared, kPage) && shared[kPage] != 0);
  MUST(msync(shared, kSize, MS_SYNC));
  pass_checkpoints();
  CHECK(is_zero(shared, kPage) && shared[kPage] != 0 && memory[kPage] == 1);
}

int main(void) {
  harmless();
  across_fork();
  emptied();
  unsigned char* memory = mapped(MAP_PRIVATE);
  MAY(mlock2(memory, kSize, MLOCK_ONFAULT), ENOMEM);
  MAY(mlockall(MCL_CURRENT), ENOMEM);
  MUST(munlockall());
  return ok("advised");
}
