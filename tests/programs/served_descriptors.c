// Descriptors that come and go while calls are served without a stop: the same few numbers are files, pipes, sockets and copies of one another
// in turn, and every byte must be paired with the channel that was behind the number when it was used.
#include "test.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

enum { kRounds = 300 };

// A file, read and closed; nothing is behind it that the recorder must ask for.
static void files(int round) {
  const int fd = MUST(open("data", O_RDONLY | (round % 3 ? O_CLOEXEC : 0)));
  char text[16] = {0};
  CHECK(read(fd, text, sizeof text) == 11);
  NOTE(text);
  const int copy = MUST(round % 2 ? dup(fd) : fcntl(fd, F_DUPFD, 3));
  MUST(close(fd));
  CHECK(lseek(copy, 0, SEEK_CUR) == 11);
  MUST(close(copy));
  FAILS(close(copy), EBADF);
}

// The number was a file; now it is a pipe, then one end of a socket, then a copy of the other end.
static void in_turn(int round) {
  int ends[2], pair[2];
  char byte = (char)round, got = 0;
  MUST(pipe2(ends, round % 2 ? O_CLOEXEC : 0));
  CHECK(write(ends[1], &byte, 1) == 1 && read(ends[0], &got, 1) == 1 && got == byte);
  MUST(close(ends[0]));
  MUST(close(ends[1]));
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  CHECK(write(pair[0], &byte, 1) == 1 && read(pair[1], &got, 1) == 1 && got == byte);
  CHECK(write(pair[1], "xy", 2) == 2);
  const int copy = MUST(dup2(pair[1], 40));
  CHECK(write(copy, "z", 1) == 1);
  char three[3];
  CHECK(read(pair[0], three, 3) == 3 && memcmp(three, "xyz", 3) == 0);
  CHECK(dup3(pair[0], 40, O_CLOEXEC) == 40);  // replaces the copy
  CHECK(write(40, &byte, 1) == 1 && read(pair[1], &got, 1) == 1 && got == byte);
  CHECK(dup2(40, 40) == 40);
  FAILS(dup2(399, 40), EBADF);
  CHECK(write(pair[1], &byte, 1) == 1 && read(40, &got, 1) == 1 && got == byte);
  MUST(close(40));
  MUST(close(pair[0]));
  MUST(close(pair[1]));
}

// Things of the kernel that carry no messages, with the numbers of things that did.
static void others(int round) {
  uint64_t count = (uint64_t)round + 1, got = 0;
  const int event = MUST(eventfd(0, EFD_NONBLOCK));
  CHECK(write(event, &count, 8) == 8 && read(event, &got, 8) == 8 && got == count);
  const int poller = MUST(epoll_create1(0)), timer = MUST(timerfd_create(CLOCK_MONOTONIC, 0));
  MUST(close(timer));
  MUST(close(poller));
  MUST(close(event));
  const int fifo = MUST(open("fifo", O_RDWR));
  CHECK(write(fifo, &count, 8) == 8 && read(fifo, &got, 8) == 8 && got == count);
  MUST(close(fifo));
}

// Programs close all descriptors that there might be.
static void not_open(void) {
  for (int i = 1000; i < 6000; i++) FAILS(close(i), EBADF);
  FAILS(close(-1), EBADF);
  const int fd = MUST(dup2(STDERR_FILENO, 1000));
  MUST(close(fd));
  FAILS(close(fd), EBADF);
}

// Connections that are made, used and closed, each with the numbers of the last one. The client is another process, that asks for what it gets.
static void serve(int listener, int connections) {
  for (int i = 0; i < connections; i++) {
    const int fd = MUST(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
    char text[64];
    const ssize_t n = MUST(read(fd, text, sizeof text));
    CHECK(write(fd, text, (size_t)n) == n);
    MUST(shutdown(fd, SHUT_WR));
    CHECK(read(fd, text, sizeof text) == 0);
    MUST(close(fd));
  }
}
static void ask(const struct sockaddr_storage* address, int connections) {
  for (int i = 0; i < connections; i++) {
    const int fd = connected_to(address);
    char text[64], got[64];
    const int length = snprintf(text, sizeof text, "request %d", i);
    CHECK(write(fd, text, (size_t)length) == length);
    read_all(fd, got, (size_t)length);
    CHECK(memcmp(text, got, (size_t)length) == 0 && read(fd, got, 1) == 0);
    MUST(close(fd));
  }
  _exit(0);
}

// Two processes with one table of descriptors and two memories: what one closes, the other has lost.
static int shared_ends[2];
static void share_table(void) {
  int go[2], done[2];
  MUST(pipe(go));
  MUST(pipe(done));
  const long child = MUST(syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0));
  for (int i = 0; i < 100; i++) {
    char byte = (char)i;
    if (child == 0) {
      CHECK(read(go[0], &byte, 1) == 1);
      int numbers[2];
      CHECK(read(go[0], numbers, sizeof numbers) == sizeof numbers);
      CHECK(write(numbers[1], &byte, 1) == 1);
      MUST(close(numbers[1]));
      const int again = MUST(open("data", O_RDONLY));
      CHECK(again == numbers[1]);
      MUST(close(again));
      CHECK(write(done[1], &byte, 1) == 1);
    } else {
      MUST(pipe(shared_ends));
      CHECK(write(go[1], &byte, 1) == 1 && write(go[1], shared_ends, sizeof shared_ends) == sizeof shared_ends);
      char got = 0;
      CHECK(read(done[0], &got, 1) == 1 && got == byte);
      CHECK(read(shared_ends[0], &got, 1) == 1 && got == byte && read(shared_ends[0], &got, 1) == 0);
      FAILS(close(shared_ends[1]), EBADF);
      MUST(close(shared_ends[0]));
    }
  }
  if (child == 0) _exit(0);
  wait_for_exit((pid_t)child, 0);
}

// A file that is mapped and written to: the memory shows each write at once, and the program changes it in between.
static void mapped(void) {
  const int fd = MUST(open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0600));
  MUST(ftruncate(fd, 4096));
  volatile uint32_t* shown = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(shown != MAP_FAILED);
  int ends[2];
  MUST(pipe(ends));
  for (uint32_t i = 0; i < kRounds; i++) {
    CHECK(pwrite(fd, &i, sizeof i, 0) == sizeof i && shown[0] == i);
    shown[0] = i + 7;
    CHECK(write(ends[1], &i, sizeof i) == sizeof i);
    uint32_t got[2];
    CHECK(read(ends[0], got, sizeof i) == sizeof i && pread(fd, got, sizeof got, 0) == sizeof got && got[0] == i + 7);
  }
  MUST(munmap((void*)shown, 4096));
  MUST(close(fd));
}

// Tests without success, many in a row, from places that differ and do not: each must be there in a replay.
static void series(void) {
  int ends[2];
  MUST(pipe2(ends, O_NONBLOCK));
  int count = 0;
  for (int i = 0; i < 2000; i++) {
    char byte;
    count += read(ends[0], &byte, 1) == -1 && errno == EAGAIN;
    if (i % 97 == 0) {
      CHECK(write(ends[1], "x", 1) == 1);
      CHECK(read(ends[0], &byte, 1) == 1);
    }
    if (i % 500 == 499) CHECK(syscall(SYS_getppid) >= 0);
  }
  CHECK(count == 2000);
  CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

int main(void) {
  const int data = MUST(open("data", O_WRONLY | O_CREAT | O_TRUNC, 0600));
  CHECK(write(data, "hello world", 11) == 11);
  MUST(close(data));
  MUST(mkfifo("fifo", 0600));
  struct sockaddr_storage address;
  const int listener = bound_socket(AF_INET, SOCK_STREAM, &address);
  const pid_t client = MUST(fork());
  if (client == 0) ask(&address, kRounds);
  serve(listener, kRounds);
  wait_for_exit(client, 0);
  for (int i = 0; i < kRounds; i++) {
    files(i);
    in_turn(i);
    others(i);
  }
  series();
  mapped();
  not_open();
  // A child on a table of its own, in the same memory: what it closes is still open here.
  for (int i = 0; i < 20; i++) {
    int ends[2];
    MUST(pipe(ends));
    const pid_t child = MUST(vfork());
    if (child == 0) {
      close(ends[0]);
      dup2(ends[1], ends[0]);
      _exit(write(ends[0], "v", 1) == 1 && close(ends[0]) == 0 ? 0 : 1);
    }
    wait_for_exit(child, 0);
    char byte = 0;
    CHECK(read(ends[0], &byte, 1) == 1 && byte == 'v');
    MUST(close(ends[0]));
    MUST(close(ends[1]));
  }
  share_table();
  CHECK(unlink("data") == 0 && unlink("fifo") == 0 && unlink("mapped") == 0);
  return ok("%016lx", noted);
}
