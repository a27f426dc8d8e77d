// Threads of one process with descriptor tables and working directories of their own: by unshare(2), close_range(2),
// and clone(2) without CLONE_FILES. The same number means another file in each: they map these, cut them by relative
// names, and send through them.
#include "test.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { kPage = 4096, kChannel = 50, kFile = 51 };
static char directory[] = "thread_tables.XXXXXX";
static int ends[2][2];  // of two pipes
static char* cut;       // a file of the directory, mapped shared

static void make_file(const char* name, char content) {
  char page[kPage];
  memset(page, content, sizeof page);
  const int file = MUST(open(name, O_RDWR | O_CREAT | O_TRUNC, 0600));
  write_all(file, page, sizeof page);
  MUST(dup2(file, kFile));
  MUST(close(file));
}

static char mapped_by(int file) {
  const char* page = mmap(NULL, kPage, PROT_READ, MAP_PRIVATE, file, 0);
  CHECK(page != MAP_FAILED);
  const char found = page[7];
  MUST(munmap((void*)page, kPage));
  return found;
}

static void use_own(char content, int message) {
  char name[] = "own ";
  name[3] = content;
  make_file(name, content);
  CHECK(mapped_by(kFile) == content);
  MUST(dup2(ends[1][1], kChannel));
  write_all(kChannel, &message, sizeof message);
  MUST(unlink(name));
}

static void* with_unshare(void* unused) {
  MUST(unshare(CLONE_FILES | CLONE_FS));
  use_own('u', 1001);
  MUST(chdir(directory));
  MUST(close(MUST(open("cut", O_RDWR | O_TRUNC))));
  MUST(truncate("cut", kPage));
  CHECK(cut[9] == 0);
  return unused;
}

static void* with_close_range(void* unused) {
  MUST(close_range(kFile, kFile, CLOSE_RANGE_UNSHARE));
  use_own('r', 1002);
  return unused;
}

static char stack[1 << 16] __attribute__((aligned(16)));
static volatile int born_is_done;
static int with_clone(void* unused) {
  (void)unused;
  use_own('c', 1003);
  __atomic_store_n(&born_is_done, 1, __ATOMIC_SEQ_CST);
  syscall(SYS_exit, 0);
  return 0;
}

// What the others have done to their tables has not changed this thread's.
static void check_first(int expected) {
  int message = 7 * expected;
  write_all(kChannel, &message, sizeof message);
  read_all(ends[0][0], &message, sizeof message);
  CHECK(message == 7 * expected);
  read_all(ends[1][0], &message, sizeof message);
  CHECK(message == expected);
  NOTE(message);
  CHECK(mapped_by(kFile) == 'm');
}

int main(void) {
  CHECK(mkdtemp(directory));
  for (int i = 0; i < 2; i++) MUST(pipe(ends[i]));
  MUST(dup2(ends[0][1], kChannel));
  char name[64];
  snprintf(name, sizeof name, "%s/cut", directory);
  make_file(name, 'x');
  cut = mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, kFile, 0);
  CHECK(cut != MAP_FAILED && cut[9] == 'x');
  make_file("own m", 'm');

  void* (*const ways[])(void*) = {with_unshare, with_close_range};
  for (int i = 0; i < 2; i++) {
    pthread_t thread;
    MUST0(pthread_create(&thread, NULL, ways[i], NULL));
    MUST0(pthread_join(thread, NULL));
    check_first(1001 + i);
  }
  const int shared = CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
  MUST(clone(with_clone, stack + sizeof stack, shared, NULL));
  while (!__atomic_load_n(&born_is_done, __ATOMIC_SEQ_CST)) usleep(1000);
  check_first(1003);

  const char found = cut[9];
  NOTE(found);
  pass_checkpoints();
  MUST(unlink("own m"));
  MUST(unlink(name));
  MUST(rmdir(directory));
  return ok("%llx", (unsigned long long)noted);
}
