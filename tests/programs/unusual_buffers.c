// Buffers that lie over the structures that name them, buffers into which nothing is written although the result counts it, and timeouts
// in memory that cannot be written to: what a call finds in memory may not be there after it.
#include "test.h"

#include <net/if.h>
#include <poll.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <time.h>

enum { kRounds = 5, kSize = 256 };

static const struct timespec a_little = {0, 1000000};

// An array of buffers, and a header that names it. The first buffer begins at the array, or at the header, and covers both.
struct Named {
  struct mmsghdr messages[1];
  struct iovec parts[4];
  char rest[kSize];
};

static void prepare(struct Named* named, size_t first) {
  memset(named, 0, sizeof *named);
  named->parts[0] = (struct iovec){(char*)named + first, sizeof *named - sizeof named->rest - first};
  named->parts[1] = (struct iovec){named->rest, kSize};
  named->messages[0].msg_hdr = (struct msghdr){.msg_iov = named->parts, .msg_iovlen = 2};
}

static void overlapping(void) {
  int pair[2];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  char data[kSize];
  static struct Named named;
  const size_t array = offsetof(struct Named, parts), covered = sizeof named.parts;
  for (int round = 0; round < kRounds; round++) {
    fill(data, sizeof data, (unsigned)round);
    const struct iovec* const parts = named.parts;
    write_all(pair[1], data, sizeof data);
    prepare(&named, array);
    CHECK(readv(pair[0], parts, 2) == kSize);
    CHECK(memcmp(parts, data, covered) == 0 && memcmp(named.rest, data + covered, kSize - covered) == 0);
    for (size_t first = 0; first <= array; first += array) {
      write_all(pair[1], data, sizeof data);
      prepare(&named, first);
      CHECK(recvmsg(pair[0], &named.messages[0].msg_hdr, 0) == kSize);
      CHECK(memcmp(parts, data + array - first, covered) == 0);
      NOTE(named);
      write_all(pair[1], data, sizeof data);
      prepare(&named, first);
      CHECK(recvmmsg(pair[0], named.messages, 1, 0, NULL) == 1 && named.messages[0].msg_len == kSize);
      CHECK(memcmp(parts, data + array - first, covered) == 0);
      NOTE(named);
    }
    union {
      struct ifconf request;
      struct ifreq found[8];
    } interfaces = {.request = {.ifc_len = sizeof interfaces, .ifc_req = interfaces.found}};
    MUST(ioctl(pair[0], SIOCGIFCONF, &interfaces));
    NOTE(interfaces);
  }
}

// TCP discards what is received with MSG_TRUNC.
static void discarded(void) {
  struct sockaddr_storage address;
  const int listening = bound_socket(AF_INET, SOCK_STREAM, &address);
  const int to = connected_to(&address), from = MUST(accept(listening, NULL, NULL));
  for (int round = 0; round < kRounds; round++) {
    char rest[8] = "";
    write_all(to, "discarded", 9);
    struct iovec nowhere = {NULL, 6};
    struct msghdr message = {.msg_iov = &nowhere, .msg_iovlen = 1};
    CHECK(recvmsg(from, &message, MSG_TRUNC) == 6);
    CHECK(recv(from, (void*)(intptr_t)16, 1, MSG_TRUNC) == 1);
    CHECK(recv(from, rest, sizeof rest, 0) == 2 && strcmp(rest, "ed") == 0);
  }
}

static int silent[2];

static void* wait_in_turns(void* rounds) {
  for (int i = 0; i < *(int*)rounds; i++) {
    struct pollfd entry = {silent[0], POLLIN, 0};
    CHECK(syscall(SYS_ppoll, &entry, 1, &a_little, NULL, 8) == 0);
    NOTE(entry);
  }
  return NULL;
}

int main(void) {
  overlapping();
  discarded();
  MUST(pipe(silent));
  int rounds = 50;
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) MUST0(pthread_create(&threads[i], NULL, wait_in_turns, &rounds));
  for (int i = 0; i < 3; i++) MUST0(pthread_join(threads[i], NULL));
  return ok("%016lx", noted);
}
