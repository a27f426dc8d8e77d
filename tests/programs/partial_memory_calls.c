// Memory calls that fail after they have changed a part of their range, that move mappings which the kernel has merged, and that detach a
// segment in pieces; memory that grows downwards.
// images: 2
#include "test.h"

#include <fcntl.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/shm.h>

enum { kPage = 4096 };

static sigjmp_buf behind_fault;
static void on_fault(int signal) {
  (void)signal;
  siglongjmp(behind_fault, 1);
}

static int can_write(volatile char* at) {
  if (sigsetjmp(behind_fault, 1)) return 0;
  *at = 1;
  return 1;
}

static char* map(void* at, size_t pages, int protection) {
  const int fixed = at ? MAP_FIXED : 0;
  return MUST(mmap(at, pages * kPage, protection, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0));
}

// Pages with a hole in their middle.
static char* map_with_hole(void) {
  char* const at = map(NULL, 8, PROT_READ | PROT_WRITE);
  fill(at, 8 * kPage, 3);
  MUST(munmap(at + 4 * kPage, kPage));
  return at;
}

static void fail_in_part(void) {
  char* at = map_with_hole();
  FAILS(mprotect(at + kPage, 7 * kPage, PROT_READ), ENOMEM);
  CHECK(can_write(at) && !can_write(at + kPage) && !can_write(at + 3 * kPage) && can_write(at + 5 * kPage));
  at = map_with_hole();
  FAILS(madvise(at + kPage, 7 * kPage, MADV_DONTNEED), ENOMEM);
  CHECK(at[kPage - 1] != 0 && at[3 * kPage + 5] == 0 && at[6 * kPage + 5] == 0);
  note_bytes(at, 4 * kPage);
  note_bytes(at + 5 * kPage, 3 * kPage);
  // Up to what is locked. That may be the first mapping, as where glibc empties a stack with its guard in a program that locks all.
  for (int locked = 0; locked <= 5; locked += 5) {
    at = map_with_hole();
    if (mlock(at + locked * kPage, 2 * kPage) == 0) {
      FAILS(madvise(at, 8 * kPage, MADV_DONTNEED), EINVAL);
      CHECK((at[5] == 0) == (locked != 0) && (at[3 * kPage + 5] == 0) == (locked != 0) && at[6 * kPage + 5] != 0 && at[7 * kPage + 5] != 0);
      MUST(munlock(at + locked * kPage, 2 * kPage));
    }
    note_bytes(at, 4 * kPage);
    note_bytes(at + 5 * kPage, 3 * kPage);
  }
  at = map_with_hole();
  unsigned char resident[8];
  memset(resident, 77, sizeof resident);
  CHECK(mincore(at, sizeof resident * kPage, resident) == -1 && errno == ENOMEM);
  CHECK((resident[0] & 1) && (resident[3] & 1) && resident[4] == 77 && resident[7] == 77);
  // If the target was unmapped before the call failed, it is not there in a replay either.
  char* const target = map(NULL, 4, PROT_READ | PROT_WRITE);
  CHECK(mremap(at + 3 * kPage, 3 * kPage, 4 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, target) == MAP_FAILED);
  NOTE(errno);
  const int there = can_write(target);
  NOTE(there);
  // If there can be no target, nothing was unmapped.
  char* const no_targets[] = {(char*)-1, (char*)(-1L * kPage), (char*)(-2L * kPage)};
  for (size_t i = 0; i < sizeof no_targets / sizeof *no_targets; i++) {
    CHECK(mremap(at, 3 * kPage, 3 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, no_targets[i]) == MAP_FAILED && errno == EINVAL);
  }
  // Where the source wraps around, there is nothing to move.
  MUST(munmap(target, 3 * kPage));
  CHECK(mremap(at, -(size_t)at + kPage, 3 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, target) == MAP_FAILED && errno == EINVAL);
  note_bytes(at, 3 * kPage);
  // Nothing is mapped at the first of all these addresses. A recording refuses the call, because some of them are its own.
  CHECK(mprotect(NULL, (size_t)1 << 46, PROT_READ) == -1);
}

// A file that may only be read ends the call.
static void fail_at_file(void) {
  char* const at = map(NULL, 8, PROT_READ);
  const int file = MUST(open("/proc/self/exe", O_RDONLY));
  MUST(mmap(at + 2 * kPage, kPage, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0));
  FAILS(mprotect(at, 4 * kPage, PROT_READ | PROT_WRITE), EACCES);
  CHECK(can_write(at) && can_write(at + kPage) && !can_write(at + 2 * kPage) && !can_write(at + 3 * kPage));
  FAILS(mprotect(at + 2 * kPage, 2 * kPage, PROT_READ | PROT_WRITE), EACCES);
  CHECK(!can_write(at + 3 * kPage));
  MUST(close(file));
}

// So does memory that is sealed (mseal(2)). How far it came then depends on the kernel.
static void fail_at_sealed(void) {
  enum { kMseal = 462 };
  char* const at = map(NULL, 8, PROT_READ | PROT_WRITE);
  fill(at, 8 * kPage, 4);
  MUST(mprotect(at + 2 * kPage, kPage, PROT_READ));
  if (!MAY(syscall(kMseal, at + 2 * kPage, kPage, 0))) return;
  FAILS(mprotect(at, 4 * kPage, PROT_READ), EPERM);
  for (int i = 0; i < 4; i++) {
    const int writable = can_write(at + i * kPage);
    NOTE(writable);
  }
  MUST(mprotect(at, 2 * kPage, PROT_READ | PROT_WRITE));
  FAILS(madvise(at, 4 * kPage, MADV_DONTNEED), EPERM);
  note_bytes(at, 8 * kPage);
  fill(at, 2 * kPage, 5);
  char* const target = map(NULL, 8, PROT_READ | PROT_WRITE);
  fill(target, 8 * kPage, 6);
  enum { kMoves = MREMAP_MAYMOVE | MREMAP_FIXED };
  char* const moves[][2] = {{at, target}, {at + 2 * kPage, target + 2 * kPage}, {target + 6 * kPage, at + 2 * kPage}};
  for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
    const size_t length = (i ? 1 : 4) * kPage;
    CHECK(mremap(moves[i][0], length, length, kMoves, moves[i][1]) == MAP_FAILED);
    NOTE(errno);
    for (int k = 0; k < 8; k++) {
      const int there = can_write(at + k * kPage) | can_write(target + k * kPage) << 1;
      NOTE(there);
      if (there & 2) note_bytes(target + k * kPage, kPage);
    }
  }
}

// Pieces that were mapped separately, and were touched or not before they became adjacent.
static void move_joined(void) {
  for (int order = 0; order < 4; order++) {
    char* const area = map(NULL, 16, PROT_NONE);
    char* const first = map(area, 3, order & 1 ? PROT_READ | PROT_WRITE : PROT_READ);
    char* const second = map(area + 3 * kPage, 3, PROT_READ | PROT_WRITE);
    if (order & 2) fill(second, 3 * kPage, 5);
    if (order & 1) fill(first, 3 * kPage, 6);
    MUST(mprotect(first, 6 * kPage, PROT_READ | PROT_WRITE));
    pass_checkpoints();
    char* const moved = mremap(first, 6 * kPage, 8 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, area + 8 * kPage);
    CHECK(moved != MAP_FAILED);
    note_bytes(moved, 8 * kPage);
    fill(moved, 8 * kPage, 7);
    char* const resized = mremap(moved, 8 * kPage, 5 * kPage, 0);
    CHECK(resized == moved && !can_write(moved + 5 * kPage));
    note_bytes(moved, 5 * kPage);
  }
}

static void detach_pieces(void) {
  const int id = MUST(shmget(IPC_PRIVATE, 4 * kPage, IPC_CREAT | 0600));
  char* const at = shmat(id, NULL, 0);
  CHECK(at != (char*)-1);
  MUST(shmctl(id, IPC_RMID, NULL));
  fill(at, 4 * kPage, 8);
  MUST(munmap(at, kPage));
  MUST(munmap(at + 2 * kPage, kPage));
  note_bytes(at + kPage, kPage);
  MUST(shmdt(at));
  CHECK(!can_write(at + kPage) && !can_write(at + 3 * kPage));
}

static void grow_downwards(void) {
  char* const far_from_all = (char*)0x100000000000;
  char* const at = MUST(mmap(far_from_all, 2 * kPage, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_GROWSDOWN, -1, 0));
  CHECK(can_write(at) && can_write(at - kPage) && can_write(at - 5 * kPage));
  pass_checkpoints();  // grows from an image, too
  CHECK(can_write(at - 20 * kPage));
  MUST(mprotect(at, kPage, PROT_READ | PROT_GROWSDOWN));
  CHECK(!can_write(at - 20 * kPage) && !can_write(at) && can_write(at + kPage));
}

int main(void) {
  static char stack_of_handlers[65536];
  MUST(sigaltstack(&(stack_t){.ss_sp = stack_of_handlers, .ss_size = sizeof stack_of_handlers}, NULL));
  struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK};
  MUST(sigaction(SIGSEGV, &action, NULL));
  MUST(sigaction(SIGBUS, &action, NULL));
  fail_in_part();
  fail_at_file();
  fail_at_sealed();
  move_joined();
  detach_pieces();
  grow_downwards();
  CHECK(syscall(SYS_brk, 1) > 1);  // fails by returning the current break
  return ok("%016llx", (unsigned long long)noted);
}
