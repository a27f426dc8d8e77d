// Messages that fill the buffers of their receiver exactly, without a name and without control data, so many that no record of them fits
// everywhere where another one did.
#include "test.h"

#include <sys/uio.h>

enum { kMessages = 60000, kLengths = 97, kBatches = 2000, kBatch = 8 };

static void one_by_one(const int* ends) {
  char data[kLengths], sent[kLengths];
  for (int i = 0; i < kMessages; i++) {
    const size_t length = 1 + (size_t)i % kLengths;
    memset(sent, i, length);
    CHECK(send(ends[0], sent, length, 0) == (ssize_t)length);
    struct iovec part = {data, length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    CHECK(recvmsg(ends[1], &message, 0) == (ssize_t)length && memcmp(data, sent, length) == 0);
  }
}

static void in_batches(const int* ends) {
  char data[kBatch][16], sent[16];
  for (int i = 0; i < kBatches; i++) {
    memset(sent, i, sizeof sent);
    struct iovec parts[kBatch];
    struct mmsghdr messages[kBatch] = {0};
    for (int k = 0; k < kBatch; k++) {
      CHECK(send(ends[0], sent, sizeof sent, 0) == sizeof sent);
      parts[k] = (struct iovec){data[k], sizeof data[k]};
      messages[k].msg_hdr.msg_iov = &parts[k];
      messages[k].msg_hdr.msg_iovlen = 1;
    }
    CHECK(recvmmsg(ends[1], messages, kBatch, 0, NULL) == kBatch);
    for (int k = 0; k < kBatch; k++) CHECK(messages[k].msg_len == sizeof sent && memcmp(data[k], sent, sizeof sent) == 0);
    note_bytes(data, sizeof data);
  }
}

int main(void) {
  int ends[2];
  MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
  one_by_one(ends);
  in_batches(ends);
  return ok("%016llx", (unsigned long long)noted);
}
