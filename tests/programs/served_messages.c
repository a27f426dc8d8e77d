// sendmsg, recvmsg, sendmmsg and recvmmsg over and over, with names, control data, several buffers, peeks and messages that do not fit.
// Everything that the calls write into and around their headers is noted, so that a replay compares it.
#include "test.h"

#include <poll.h>
#include <sys/uio.h>

enum { kRounds = 200, kParts = 3, kBatch = 4 };

struct Buffers {
  char part[kParts][40];
  struct iovec vector[kParts];
  struct sockaddr_storage name;
  _Alignas(struct cmsghdr) char control[64];
  struct msghdr header;
};

static struct msghdr* prepare(struct Buffers* b, size_t length, int with_name) {
  memset(b, 0, sizeof *b);
  for (int i = 0; i < kParts; i++) b->vector[i] = (struct iovec){b->part[i], length};
  b->header = (struct msghdr){.msg_iov = b->vector, .msg_iovlen = kParts, .msg_control = b->control, .msg_controllen = sizeof b->control};
  if (with_name) b->header.msg_name = &b->name, b->header.msg_namelen = sizeof b->name;
  return &b->header;
}

static void note_header(const struct Buffers* b) {
  NOTE(b->part);
  NOTE(b->name);
  NOTE(b->control);
  NOTE(b->header.msg_namelen);
  NOTE(b->header.msg_controllen);
  NOTE(b->header.msg_flags);
}

// Over a stream into which a forked child sends: more or less arrives than fits.
static void stream(void) {
  int pair[2];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  const pid_t child = MUST(fork());
  struct Buffers b;
  if (child == 0) {
    for (int i = 0; i < kRounds; i++) {
      struct msghdr* header = prepare(&b, 20, 0);
      header->msg_controllen = 0;
      for (int k = 0; k < kParts; k++) fill(b.part[k], 20, (unsigned)(i * kParts + k));
      CHECK(sendmsg(pair[1], header, 0) == 60);
    }
    _exit(0);
  }
  MUST(close(pair[1]));
  uint64_t total = 0;
  for (;;) {
    struct msghdr* header = prepare(&b, 5 + total % 30, 0);
    const ssize_t peeked = MUST(recvmsg(pair[0], header, MSG_PEEK));
    prepare(&b, 5 + total % 30, 0);
    const ssize_t n = MUST(recvmsg(pair[0], header, total % 2 ? MSG_DONTWAIT : 0));
    CHECK(n >= peeked);
    note_header(&b);
    if (n == 0) break;
    for (ssize_t i = 0; i < n; i++, total++) {
      const size_t length = b.vector[0].iov_len;
      const char byte = b.part[(size_t)i / length][(size_t)i % length];
      CHECK(byte == (char)(total / 20 * 31 + total % 20 * 7));
    }
  }
  CHECK(total == kRounds * 60);
  wait_for_exit(child, 0);
  MUST(close(pair[0]));
}

// Over UDP: names, time stamps as control data, truncation, batches.
static void datagrams(void) {
  struct sockaddr_storage address;
  const int in = bound_socket(AF_INET, SOCK_DGRAM, &address);
  const int out = MUST(socket(AF_INET, SOCK_DGRAM, 0));
  const int on = 1;
  MUST(setsockopt(in, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on));
  static struct Buffers b[kBatch];
  for (int i = 0; i < kRounds; i++) {
    struct mmsghdr batch[kBatch] = {{.msg_len = 1}};
    for (int k = 0; k < kBatch; k++) {
      struct msghdr* header = prepare(&b[k], (size_t)(5 + k), 0);
      header->msg_controllen = 0;
      header->msg_name = &address, header->msg_namelen = sizeof(struct sockaddr_in);
      for (int p = 0; p < kParts; p++) fill(b[k].part[p], 40, (unsigned)(i + p));
      batch[k].msg_hdr = *header;
    }
    CHECK(MUST(sendmmsg(out, batch, kBatch, 0)) == kBatch && batch[kBatch - 1].msg_len == 3 * (4 + kBatch));
    struct msghdr* header = prepare(&b[0], 2, 1);  // the first is longer
    CHECK(MUST(recvmsg(in, header, MSG_TRUNC)) == 15 && (header->msg_flags & MSG_TRUNC));
    CHECK(header->msg_namelen == sizeof(struct sockaddr_in) && header->msg_controllen > 0);
    note_header(&b[0]);
    for (int k = 0; k < kBatch; k++) batch[k] = (struct mmsghdr){*prepare(&b[k], 40, 1), 99};
    struct timespec time = {1, 0};
    CHECK(MUST(recvmmsg(in, batch, kBatch, MSG_WAITFORONE, &time)) == kBatch - 1);
    for (int k = 0; k < kBatch; k++) {
      CHECK(batch[k].msg_len == (k < kBatch - 1 ? 3u * (6 + (unsigned)k) : 99));
      b[k].header = batch[k].msg_hdr;
      note_header(&b[k]);
      NOTE(batch[k].msg_len);
    }
    FAILS(recvmmsg(in, batch, kBatch, MSG_DONTWAIT, NULL), EAGAIN);
    FAILS(recvmsg(in, header, MSG_DONTWAIT), EAGAIN);
    NOTE(time);
  }
  FAILS(recvmsg(in, (struct msghdr*)16, MSG_DONTWAIT), EFAULT);
  struct msghdr* wrong = prepare(&b[0], 4, 0);
  b[0].vector[1].iov_base = (void*)16;
  CHECK(sendmsg(out, wrong, MSG_DONTWAIT) == -1);
  CHECK(close(in) == 0 && close(out) == 0);
}

// Descriptors that arrive in control data are used and closed, and their numbers are reused.
static void passed(void) {
  int pair[2];
  MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
  for (int i = 0; i < kRounds; i++) {
    int pipe_ends[2];
    MUST(pipe(pipe_ends));
    struct Buffers b;
    struct msghdr* header = prepare(&b, 1, 0);
    struct cmsghdr* control = CMSG_FIRSTHDR(header);
    *control = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(control), &pipe_ends[i % 2 ? 1 : 0], sizeof(int));
    header->msg_controllen = CMSG_SPACE(sizeof(int));
    CHECK(sendmsg(pair[0], header, 0) == 3);
    header = prepare(&b, 1, 0);
    CHECK(recvmsg(pair[1], header, MSG_CMSG_CLOEXEC) == 3);
    note_header(&b);
    int got;
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(header)), sizeof got);
    char text[8] = {0};
    CHECK(write(i % 2 ? got : pipe_ends[1], "hello", 5) == 5);
    CHECK(read(i % 2 ? pipe_ends[0] : got, text, sizeof text) == 5 && strcmp(text, "hello") == 0);
    CHECK(close(got) == 0 && close(pipe_ends[0]) == 0 && close(pipe_ends[1]) == 0);
  }
  CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
}

static void* idle(void* ends) {
  char byte;
  CHECK(read(((int*)ends)[0], &byte, 1) == 1);
  return NULL;
}

int main(void) {
  stream();
  datagrams();
  passed();
  // The same while another thread sleeps: calls that may sleep are not served.
  int ends[2];
  MUST(pipe(ends));
  pthread_t thread;
  MUST0(pthread_create(&thread, NULL, idle, ends));
  stream();
  datagrams();
  passed();
  CHECK(write(ends[1], "x", 1) == 1);
  MUST0(pthread_join(thread, NULL));
  return ok("%016lx", noted);
}
