// A private mapping shows changes of its file in pages that the process has not written to. Calls write to the file, truncate and extend
// it, in the process itself, in its children and in its parent; then checkpoints come.
// images: 1
#include "test.h"

#include <fcntl.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum { kPage = 4096, kPages = 8, kLength = kPages * kPage, kRounds = 10 };

static sigjmp_buf beyond;
static void on_bus_error(int signal) { siglongjmp(beyond, signal); }

// The byte, or -1 beyond the file's end.
static int look(const volatile unsigned char* place) {
  if (sigsetjmp(beyond, 1)) return -1;
  return *place;
}

// What the view shows becomes part of what the program prints.
static void note_view(const unsigned char* view) {
  for (int page = 0; page < kPages; page++) {
    const int first = look(view + page * kPage), last = look(view + page * kPage + kPage - 1);
    NOTE(first);
    NOTE(last);
    if (first >= 0) note_bytes(view + page * kPage, kPage);
  }
}

static void put(int fd, int value, off_t from, size_t length) {
  unsigned char bytes[kLength];
  memset(bytes, value, sizeof bytes);
  CHECK(pwrite(fd, bytes, length, from) == (ssize_t)length);
}

static unsigned char* map(int fd, int protection) {
  unsigned char* view = mmap(NULL, kLength, protection, MAP_PRIVATE, fd, 0);
  CHECK(view != MAP_FAILED);
  return view;
}

// `source`: a file from which can be copied.
static void in_one_process(int fd, int source) {
  put(fd, 1, 0, 4 * kPage);
  unsigned char* const view = map(fd, PROT_READ | PROT_WRITE);
  unsigned char* const reader = map(fd, PROT_READ);
  view[kPage] = 99;  // from now on this page is private
  note_view(view);

  put(fd, 2, kPage / 2, 2 * kPage);
  CHECK(view[0] == 1 && view[kPage / 2] == 2 && view[kPage] == 99 && view[kPage + 1] == 1 && view[2 * kPage] == 2);
  CHECK(reader[kPage] == 2 && reader[3 * kPage] == 1 && look(reader + 4 * kPage) == -1);
  note_view(view);

  // The file grows, by a write and by ftruncate.
  put(fd, 3, 4 * kPage + 10, 20);
  CHECK(reader[4 * kPage] == 0 && reader[4 * kPage + 10] == 3 && look(reader + 5 * kPage) == -1);
  MUST(ftruncate(fd, 6 * kPage + 1));
  CHECK(reader[6 * kPage + 5] == 0 && look(view + 7 * kPage) == -1);
  struct iovec pieces[] = {{"ab", 2}, {"cde", 3}};
  MUST(lseek(fd, 5 * kPage - 2, SEEK_SET));
  CHECK(writev(fd, pieces, 2) == 5 && memcmp(reader + 5 * kPage - 2, "abcde", 5) == 0);
  note_view(view);

  // The file shrinks: what was written to a page beyond its end is lost.
  view[2 * kPage + 1] = 98;
  MUST(ftruncate(fd, 2 * kPage + 5));
  CHECK(view[2 * kPage + 1] == 98 && view[kPage] == 99 && look(view + 3 * kPage) == -1);
  CHECK(reader[2 * kPage + 4] == 2 && reader[2 * kPage + 5] == 0);
  note_view(view);
  note_view(reader);
  MUST(ftruncate(fd, kPage));
  CHECK(look(view + kPage) == -1 && look(view + 2 * kPage + 1) == -1);
  MUST(ftruncate(fd, 3 * kPage));
  CHECK(view[kPage] == 0 && view[2 * kPage + 1] == 0);
  view[kPage] = 97;
  note_view(view);
  pass_checkpoints();
  CHECK(view[kPage] == 97 && reader[kPage] == 0 && reader[0] == 1 && look(reader + 3 * kPage) == -1);

  // Changes by calls that copy, by a descriptor that appends, and by one that is opened again.
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const int other = MUST(open(path, O_WRONLY | O_APPEND));
  CHECK(write(other, "end", 3) == 3 && memcmp(reader + 3 * kPage, "end", 3) == 0);
  put(source, 7, 0, kPage);
  off_t from = 0;
  MUST(lseek(fd, 10, SEEK_SET));
  CHECK(sendfile(fd, source, &from, 100) == 100 && reader[9] == 1 && reader[10] == 7 && reader[110] == 1);
  from = 0;
  off_t to = 5 * kPage;
  CHECK(copy_file_range(source, &from, fd, &to, kPage, 0) == kPage && reader[5 * kPage + 9] == 7 && reader[4 * kPage] == 0);
  if (MAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2 * kPage), EOPNOTSUPP)) {
    CHECK(reader[10] == 0 && view[kPage] == 97);
  }
  note_view(view);
  MUST(close(MUST(open(path, O_RDWR | O_TRUNC))));
  CHECK(look(reader) == -1 && look(view + kPage) == -1);
  put(fd, 8, 0, kLength);
  CHECK(reader[kLength - 1] == 8 && view[kPage] == 8);
  note_view(view);
  MUST(munmap(view, kLength));
  put(fd, 9, 0, kLength);
  CHECK(reader[0] == 9);
  note_view(reader);
  MUST(munmap(reader, kLength));
  MUST(close(other));
}

static int to_child[2], to_parent[2];
static void tell(int fd) { CHECK(write(fd, "t", 1) == 1); }
static void hear(int fd) {
  char byte = 0;
  CHECK(read(fd, &byte, 1) == 1);
}

// The parent changes what the child sees: while the child sleeps, makes calls, and makes none; and the other way round.
static void between_processes(int fd) {
  put(fd, 1, 0, kLength);
  volatile unsigned char* const view = map(fd, PROT_READ | PROT_WRITE);
  view[kPage] = 99;
  MUST(pipe(to_child));
  MUST(pipe(to_parent));
  const pid_t child = MUST(fork());
  if (child == 0) {
    MUST(close(to_child[1]));
    MUST(close(to_parent[0]));
    view[2 * kPage] = 98;
    tell(to_parent[1]);
    hear(to_child[0]);
    CHECK(view[0] == 2 && view[kPage] == 99 && view[2 * kPage] == 98 && view[3 * kPage] == 2);
    tell(to_parent[1]);
    for (int round = 1; round <= kRounds; round++) {
      while (view[kLength - 1] != 100 + round) syscall(SYS_getppid);  // the last byte that is written
      CHECK(view[0] == 100 + round && view[kPage] == 99 && view[2 * kPage] == 98 && view[3 * kPage] == 100 + round);
      tell(to_parent[1]);
    }
    while (view[0] != 3) {
    }
    tell(to_parent[1]);
    hear(to_child[0]);
    CHECK(look((unsigned char*)view + 2 * kPage) == -1);
    put(fd, 4, 0, kLength);
    pass_checkpoints();
    CHECK(view[0] == 4 && view[kPage] == 99 && view[2 * kPage] == 4);
    _exit(0);
  }
  MUST(close(to_child[0]));
  MUST(close(to_parent[1]));
  hear(to_parent[0]);
  put(fd, 2, 0, kLength);
  CHECK(view[0] == 2 && view[kPage] == 99 && view[2 * kPage] == 2);
  tell(to_child[1]);
  hear(to_parent[0]);
  for (int round = 1; round <= kRounds; round++) {
    put(fd, 100 + round, 0, kLength);
    hear(to_parent[0]);
  }
  put(fd, 3, 0, kLength);
  hear(to_parent[0]);
  MUST(ftruncate(fd, 2 * kPage));
  tell(to_child[1]);
  int status = -1;
  MUST(waitpid(child, &status, 0));
  CHECK(status == 0);
  CHECK(view[0] == 4 && view[kPage] == 99 && view[2 * kPage] == 4);
  note_view((unsigned char*)view);
  MUST(munmap((void*)view, kLength));
}

int main(void) {
  MUST(sigaction(SIGBUS, &(struct sigaction){.sa_handler = on_bus_error}, NULL));
  const int file = MUST(open("file", O_RDWR | O_CREAT | O_TRUNC, 0600));
  const int memory = MUST(memfd_create("memory", MFD_CLOEXEC));
  in_one_process(file, MUST(open("source", O_RDWR | O_CREAT | O_TRUNC, 0600)));
  in_one_process(memory, MUST(memfd_create("source", MFD_CLOEXEC)));
  MUST(ftruncate(file, 0));
  between_processes(file);
  MUST(close(memory));
  MUST(close(file));
  return ok("%016lx", (unsigned long)noted);
}
