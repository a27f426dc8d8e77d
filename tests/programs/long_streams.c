// Some hundred megabytes between processes, more than a replay keeps memory for: over a pipe, by vectors, whose reader
// is sometimes slow; over TCP, looked at before they are received; in datagrams; and over a pipe with two readers that
// take turns. Each reader checks every byte.
#include <sys/uio.h>

#include "test.h"

enum { kMost = 256 << 10, kDatagram = 32 << 10 };
static const size_t kLength = 48 << 20;

static unsigned char pattern[2 * kMost];

// The stream's bytes at `at`: those of a pattern that repeats every `kMost - 1` bytes.
static const unsigned char* expected(size_t at) { return pattern + at % (kMost - 1); }

static size_t next_length(size_t done) {
  const size_t length = 1 + draw(kMost);
  return length < kLength - done ? length : kLength - done;
}

static void send_stream(int fd) {
  for (size_t done = 0; done < kLength;) {
    const size_t length = next_length(done), first = length / 3;
    struct iovec parts[2] = {{(void*)expected(done), first}, {(void*)expected(done + first), length - first}};
    const ssize_t n = writev(fd, parts, 2);
    CHECK(n > 0);
    done += (size_t)n;
  }
}

static void receive_stream(int fd, int socket) {
  static unsigned char data[kMost];
  for (size_t done = 0; done < kLength;) {
    const size_t length = next_length(done);
    if (socket && draw(4) == 0) {
      const ssize_t seen = recv(fd, data, length, MSG_PEEK);
      CHECK(seen > 0 && memcmp(data, expected(done), (size_t)seen) == 0);
    }
    const ssize_t n = read(fd, data, length);
    CHECK(n > 0 && memcmp(data, expected(done), (size_t)n) == 0);
    done += (size_t)n;
    if (!socket && draw(100) == 0) (void)compute(done, 20);
  }
  CHECK(read(fd, data, 1) == 0);
}

static void over_pipe(void) {
  int fds[2];
  MUST(pipe(fds));
  const pid_t child = MUST(fork());
  if (child == 0) {
    close(fds[1]);
    receive_stream(fds[0], 0);
    _exit(1);
  }
  close(fds[0]);
  send_stream(fds[1]);
  close(fds[1]);
  wait_for_exit(child, 1);
}

static void over_tcp(void) {
  struct sockaddr_storage address;
  const int listening = bound_socket(AF_INET, SOCK_STREAM, &address);
  const pid_t child = MUST(fork());
  if (child == 0) {
    receive_stream(MUST(accept(listening, NULL, NULL)), 1);
    _exit(2);
  }
  const int fd = connected_to(&address);
  send_stream(fd);
  close(fd);
  wait_for_exit(child, 2);
  close(listening);
}

static void over_datagrams(void) {
  int fds[2];
  MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds));
  const pid_t child = MUST(fork());
  if (child == 0) {
    static unsigned char data[kDatagram];
    for (size_t i = 0; i < kLength / kDatagram; i++) {
      CHECK(recv(fds[1], data, kDatagram, 0) == kDatagram && memcmp(data, expected(i), kDatagram) == 0);
    }
    _exit(3);
  }
  for (size_t i = 0; i < kLength / kDatagram; i++) CHECK(send(fds[0], expected(i), kDatagram, 0) == kDatagram);
  wait_for_exit(child, 3);
  close(fds[0]);
  close(fds[1]);
}

// The second reader gets the turn, and how far the first one is, over a pipe.
static void read_in_turns(int fd, int get_turn, int give_turn, size_t end) {
  static unsigned char data[kMost];
  size_t done = 0;
  while (done < end) {
    if (get_turn >= 0) read_all(get_turn, &done, sizeof done);
    if (done >= end) break;
    const ssize_t n = read(fd, data, kMost / 2 < end - done ? kMost / 2 : end - done);
    CHECK(n > 0 && memcmp(data, expected(done), (size_t)n) == 0);
    done += (size_t)n;
    write_all(give_turn, &done, sizeof done);
  }
}

static void to_two_readers(void) {
  int fds[2], turns[2][2];
  MUST(pipe(fds));
  pid_t children[2];
  for (int i = 0; i < 2; i++) MUST(pipe(turns[i]));
  for (int i = 0; i < 2; i++) {
    if ((children[i] = MUST(fork())) == 0) {
      read_in_turns(fds[0], turns[i][0], turns[1 - i][1], kLength);
      const size_t end = kLength;
      write_all(turns[1 - i][1], &end, sizeof end);
      _exit(4 + i);
    }
  }
  const size_t start = 0;
  write_all(turns[0][1], &start, sizeof start);
  send_stream(fds[1]);
  for (int i = 0; i < 2; i++) wait_for_exit(children[i], 4 + i);
}

int main(int argc, char** argv) {
  seed_random(argc, argv);
  for (size_t i = 0; i < sizeof pattern; i++) {
    const size_t at = i % (kMost - 1);
    pattern[i] = (unsigned char)(at * 7 + (at >> 8));
  }
  over_pipe();
  over_tcp();
  over_datagrams();
  to_two_readers();
  return ok("long streams");
}
