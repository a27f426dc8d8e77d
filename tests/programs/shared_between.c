// images: 1
// Shared mappings between processes that do not share memory otherwise: one reads, others change the object, through a mapping, by calls,
// and at times when the reader cannot be told.
#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { kPage = 4096, kRounds = 20 };

// Each side says through a pipe of its own that it has got this far.
static int to_reader[2], to_writer[2];
static void say(int* to) { write_all(to[1], "x", 1); }
static void await(int* from) { read_all(from[0], &(char){0}, 1); }

static void start(void) { MUST(pipe(to_reader)), MUST(pipe(to_writer)); }

// A reader that knows the file only by name, read-only.
static pid_t reader(const char* name, int rounds) {
  const pid_t child = MUST(fork());
  if (child) return child;
  const int fd = MUST(open(name, O_RDONLY));
  const volatile unsigned char* view = MUST(mmap(NULL, 2 * kPage, PROT_READ, MAP_SHARED, fd, 0));
  MUST(close(fd));
  NOTE(*(unsigned char*)view);
  say(to_writer);
  for (int i = 0; i < rounds; i++) {
    await(to_reader);
    CHECK(view[i] == i + 1 && view[kPage + 2 * i] == 2 * i + 1);
    note_bytes((void*)view, 2 * kPage);
    if (i == rounds / 2) pass_checkpoints();
    say(to_writer);
  }
  printf("%016lx\n", noted);
  CHECK(fflush(stdout) == 0);
  _exit(0);
}

int main(void) {
  // A process that has not mapped the file changes it by calls.
  start();
  int fd = MUST(open("two", O_RDWR | O_CREAT | O_TRUNC, 0600));
  MUST(ftruncate(fd, 2 * kPage));
  pid_t child = reader("two", kRounds);
  const pid_t writer = MUST(fork());
  if (writer == 0) {
    await(to_writer);
    for (int i = 0; i < kRounds; i++) {
      MUST(pwrite(fd, &(unsigned char){(unsigned char)(i + 1)}, 1, i));
      MUST(lseek(fd, kPage + 2 * i, SEEK_SET));
      MUST(write(fd, &(unsigned char){(unsigned char)(2 * i + 1)}, 1));
      say(to_reader);
      await(to_writer);
    }
    _exit(0);
  }
  wait_for_exit(child, 0);
  wait_for_exit(writer, 0);

  // The file is changed through a mapping that is made after the reader has mapped the file.
  start();
  fd = MUST(open("one", O_RDWR | O_CREAT | O_TRUNC, 0600));
  MUST(pwrite(fd, "seen before", 11, 100));
  MUST(ftruncate(fd, 2 * kPage));
  child = reader("one", kRounds);
  await(to_writer);
  volatile unsigned char* view = MUST(mmap(NULL, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  for (int i = 0; i < kRounds; i++) {
    view[i] = (unsigned char)(i + 1);
    view[kPage + 2 * i] = (unsigned char)(2 * i + 1);
    say(to_reader);
    await(to_writer);
  }
  wait_for_exit(child, 0);

  // The object is changed through a mapping of a process that only opened it by its name in memory.
  start();
  char name[64], path[128];
  snprintf(name, sizeof name, "/redrive-shared-between-%d", (int)getpid());
  snprintf(path, sizeof path, "/dev/shm%s", name);
  fd = MUST(shm_open(name, O_RDWR | O_CREAT, 0600));
  MUST(ftruncate(fd, 2 * kPage));
  volatile unsigned char* early = MUST(mmap(NULL, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  early[3 * kPage / 2] = 5;
  child = reader(path, kRounds);
  await(to_writer);
  MUST(shm_unlink(name));
  for (int i = 0; i < kRounds; i++) {
    early[i] = (unsigned char)(i + 1);
    early[kPage + 2 * i] = (unsigned char)(2 * i + 1);
    say(to_reader);
    await(to_writer);
  }
  wait_for_exit(child, 0);
  return ok("%d rounds", kRounds);
}
