// args: 40
// Two senders and a relay that answers every message with a digest of everything that it has received, and of a number that only the
// kernel knows: whatever is changed in a recording of it (tests/fault/trace_alter.cc) shows in the next message that it sends.
#include "test.h"

enum { kSize = 32 };

static void sender(int fd, unsigned number, unsigned messages) {
  char data[kSize];
  uint64_t digest;
  for (unsigned i = 0; i < messages; i++) {
    fill(data, kSize, number * 1000 + i);
    write_all(fd, data, kSize);
    read_all(fd, &digest, sizeof digest);
    (void)compute(digest, 3);
  }
  _exit((int)number);
}

int main(int argc, char** argv) {
  const unsigned messages = argc > 1 ? (unsigned)atoi(argv[1]) : 40;
  int channels[2][2];
  pid_t children[2];
  for (unsigned i = 0; i < 2; i++) {
    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, channels[i]));
    if ((children[i] = MUST(fork())) == 0) sender(channels[i][1], i, messages);
  }
  uint64_t digest = 0;
  for (unsigned i = 0; i < 2 * messages; i++) {
    char data[kSize];
    const int fd = channels[i % 2][0];
    CHECK(recv(fd, data, kSize, 0) == kSize && is_filled(data, kSize, i % 2 * 1000 + i / 2));
    for (int j = 0; j < kSize; j++) digest = digest * 31 + (unsigned char)data[j];
    digest = digest * 31 + (uint64_t)syscall(SYS_getppid);
    CHECK(send(fd, &digest, sizeof digest, 0) == sizeof digest);
  }
  for (int i = 0; i < 2; i++) wait_for_exit(children[i], i);
  return ok("digest %016lx", digest);
}
