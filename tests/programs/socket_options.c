// Options of sockets whose length is no number of bytes, or that write where pointers in them lead; and lengths of addresses that nobody
// asks for, which the kernel ignores.
#include "test.h"

#include <linux/filter.h>

enum { kRounds = 5, kInstructions = 4 };

// The length of a filter is its number of instructions.
static void get_filter(void) {
  const int fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));
  struct sock_filter code[kInstructions] = {{BPF_LD | BPF_H | BPF_ABS, 0, 0, 12},
                                            {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0x800},
                                            {BPF_RET | BPF_K, 0, 0, 0xffff},
                                            {BPF_RET | BPF_K, 0, 0, 0}};
  const struct sock_fprog program = {kInstructions, code};
  MUST(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program));
  for (int round = 0; round < kRounds; round++) {
    struct sock_filter found[2 * kInstructions];
    memset(found, round, sizeof found);
    socklen_t length = 2 * kInstructions;
    MUST(getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, found, &length));
    CHECK(length == kInstructions && memcmp(found, code, sizeof code) == 0);
    NOTE(found);
  }
  MUST(close(fd));
}

// What has come can be copied to an address in the option. A kernel need not have that.
static void receive_without_copies(int to, int from) {
  struct {
    uint64_t address;
    uint32_t length, skip, left;
    int32_t error;
    uint64_t copy_to;
    int32_t copied;
    uint32_t flags;
  } request;
  for (int round = 0; round < kRounds; round++) {
    char data[100], found[200];
    fill(data, sizeof data, (unsigned)round);
    memset(found, 0, sizeof found);
    write_all(to, data, sizeof data);
    CHECK(recv(from, found, 1, MSG_PEEK) == 1);
    memset(&request, 0, sizeof request);
    request.copy_to = (uint64_t)(uintptr_t)found;
    request.copied = sizeof found;
    socklen_t length = sizeof request;
    const int got = getsockopt(from, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &request, &length);
    CHECK(got == 0 || errno == ENOPROTOOPT || errno == EINVAL);
    const size_t copied = got == 0 ? (size_t)request.copied : 0;
    read_all(from, found + copied, sizeof data - copied);
    CHECK(memcmp(found, data, sizeof data) == 0);
    NOTE(found);
  }
}

static void ignored_lengths(const struct sockaddr_storage* address, int listening, int to, int from) {
  socklen_t* const nowhere = (socklen_t*)16;
  for (int round = 0; round < kRounds; round++) {
    char found;
    write_all(to, "x", 1);
    CHECK(recvfrom(from, &found, 1, 0, NULL, nowhere) == 1 && found == 'x');
    for (int i = 0; i < 2; i++) {
      const int other = connected_to(address);
      const int accepted = MUST(i ? accept4(listening, NULL, nowhere, 0) : accept(listening, NULL, nowhere));
      CHECK(close(other) == 0 && close(accepted) == 0);
    }
  }
}

int main(void) {
  get_filter();
  struct sockaddr_storage address;
  const int listening = bound_socket(AF_INET, SOCK_STREAM, &address);
  const int to = connected_to(&address), from = MUST(accept(listening, NULL, NULL));
  receive_without_copies(to, from);
  ignored_lengths(&address, listening, to, from);
  return ok("%016lx", noted);
}
