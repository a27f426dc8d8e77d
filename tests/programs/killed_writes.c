// Processes that are killed amid a call that writes into a file that another one has mapped, or into memory that they share. The other one
// finds there as much as they have written.
#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <time.h>

enum how { at_offset, at_position, at_end, random_bytes, part_of_file, own_memory, kWays };
enum { kSize = 4 << 20, kPart = 256 << 10, kKills = 4 * kWays, kPage = 4096 };

static int position_file, end_file, zeros_file;
static char* memory;

// In a process that shares no memory with the writers.
static void kill_each(int orders) {
  pid_t victim;
  for (int i = 0; read(orders, &victim, sizeof victim) == sizeof victim; i++) {
    const struct timespec pause = {0, 5000000 + 700000 * (i % 12)};
    MUST(nanosleep(&pause, NULL));
    MUST(kill(victim, SIGKILL));
  }
}

static void write_again(enum how how) {
  char* const data = malloc(kSize);
  struct iovec to = {memory, kSize}, from = {data, kSize};
  for (char value = 1;; value++) {
    memset(data, value, kSize);
    switch (how) {
      case at_offset:
        MUST(pwrite(position_file, data, kSize, 0));
        break;
      case at_position:
        MUST(lseek(position_file, 0, SEEK_SET));
        MUST(write(position_file, data, kSize));
        break;
      case at_end:
        MUST(ftruncate(end_file, 0));
        MUST(write(end_file, data, kSize));
        break;
      case random_bytes:
        for (size_t at = 0; at < kSize; at += kPart) MUST(getrandom(memory + at, kPart, 0));
        break;
      case part_of_file:
        memset(memory, value, kSize);
        for (size_t at = 0; at < kSize; at += kPart) MUST(pread(zeros_file, memory + at, kPart, 0));
        break;
      default:
        MUST(process_vm_readv(getpid(), &to, 1, &from, 1, 0));
    }
  }
}

// Of those pages that are there: the kernel raises SIGBUS for those beyond the file's end.
static void note_pages(const char* shown, off_t size) {
  NOTE(size);
  for (off_t at = 0; at < size; at += kPage) NOTE(shown[at]);
}

static int empty_file(int flags) { return MUST(open("/tmp", O_TMPFILE | O_RDWR | flags, 0600)); }

static char* map(int file, int flags) {
  if (file != -1) MUST(ftruncate(file, kSize));
  char* const made = mmap(NULL, kSize, PROT_READ | (file == -1 ? PROT_WRITE : 0), MAP_SHARED | flags, file, 0);
  CHECK(made != MAP_FAILED);
  return made;
}

int main(void) {
  int orders[2];
  MUST(pipe(orders));
  const pid_t killer = MUST(fork());
  if (killer == 0) {
    MUST(close(orders[1]));
    kill_each(orders[0]);
    _exit(0);
  }
  MUST(close(orders[0]));
  const int nowhere = MUST(open("/dev/null", O_WRONLY));
  zeros_file = empty_file(0);
  MUST(ftruncate(zeros_file, kPart));
  position_file = empty_file(0);
  end_file = empty_file(O_APPEND);
  const char* const written = map(position_file, 0);
  const char* const appended = map(end_file, 0);
  memory = map(-1, MAP_ANONYMOUS);
  for (int i = 0; i < kKills; i++) {
    const enum how how = i % kWays;
    const pid_t writer = MUST(fork());
    if (writer == 0) {
      const pid_t self = getpid();
      CHECK(write(orders[1], &self, sizeof self) == sizeof self);
      write_again(how);
    }
    int status;
    CHECK(waitpid(writer, &status, 0) == writer && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    note_pages(how < at_end ? written : how == at_end ? appended : memory, how == at_end ? MUST(lseek(end_file, 0, SEEK_END)) : kSize);
    const uint64_t so_far = noted;
    CHECK(write(nowhere, &so_far, sizeof so_far) == sizeof so_far);  // a replay compares it
  }
  MUST(close(orders[1]));
  int status;
  CHECK(waitpid(killer, &status, 0) == killer && status == 0);
  return ok("noted %llx", (unsigned long long)noted);
}
