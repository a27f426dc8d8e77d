// Processes that are killed amid a write to a file that another one has mapped, which finds there as much as they have written.
#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>

enum { kSize = 4 << 20, kKills = 12, kPage = 4096 };

// In a process that shares no memory with the writers.
static void kill_each(int orders) {
  pid_t victim;
  for (int i = 0; read(orders, &victim, sizeof victim) == sizeof victim; i++) {
    const struct timespec pause = {0, 5000000 + 700000 * i};
    MUST(nanosleep(&pause, NULL));
    MUST(kill(victim, SIGKILL));
  }
}

static void write_again(int file, char* data, int how) {
  for (;;) {
    for (int at = 0; at < kSize; at += kPage) data[at]++;
    if (how == 0) {
      MUST(pwrite(file, data, kSize, 0));
    } else {
      MUST(how == 1 ? lseek(file, 0, SEEK_SET) : ftruncate(file, 0));  // the latter for O_APPEND
      MUST(write(file, data, kSize));
    }
  }
}

// Of those pages that are there: the kernel raises SIGBUS for those beyond the file's end.
static void note_pages(const char* shown, int file) {
  const off_t size = MUST(lseek(file, 0, SEEK_END));
  NOTE(size);
  for (off_t at = 0; at < size; at += kPage) NOTE(shown[at]);
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
  const int files[] = {MUST(open("/tmp", O_TMPFILE | O_RDWR, 0600)), MUST(open("/tmp", O_TMPFILE | O_RDWR | O_APPEND, 0600))};
  const char* shown[2];
  for (int i = 0; i < 2; i++) {
    MUST(ftruncate(files[i], kSize));
    shown[i] = mmap(NULL, kSize, PROT_READ, MAP_SHARED, files[i], 0);
    CHECK(shown[i] != MAP_FAILED);
  }
  for (int i = 0; i < kKills; i++) {
    const int how = i % 3, file = how == 2;
    const pid_t writer = MUST(fork());
    if (writer == 0) {
      char* const data = malloc(kSize);
      memset(data, i, kSize);
      const pid_t self = getpid();
      CHECK(write(orders[1], &self, sizeof self) == sizeof self);
      write_again(files[file], data, how);
    }
    int status;
    CHECK(waitpid(writer, &status, 0) == writer && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    note_pages(shown[file], files[file]);
  }
  MUST(close(orders[1]));
  int status;
  CHECK(waitpid(killer, &status, 0) == killer && status == 0);
  return ok("noted %llx", (unsigned long long)noted);
}
