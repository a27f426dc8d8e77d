// recvmmsg of more messages than sendmmsg and vectors may have (UIO_MAXIOV), of a stream and, where the receiver may have such a buffer, of
// datagrams.
#include "test.h"

enum { kMessages = 1500, kSize = 16 };

static struct mmsghdr messages[kMessages];
static struct iovec parts[kMessages];
static char found[kMessages][kSize];

static int receive(int from, size_t size) {
  memset(found, 0, sizeof found);
  for (int i = 0; i < kMessages; i++) {
    parts[i] = (struct iovec){found[i], size};
    messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &parts[i], .msg_iovlen = 1}};
  }
  const int got = MUST(recvmmsg(from, messages, kMessages, MSG_DONTWAIT, NULL));
  for (int i = 0; i < got; i++) NOTE(messages[i].msg_len);
  NOTE(found);
  return got;
}

static void of_stream(void) {
  int ends[2];
  char bytes[kMessages];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
  for (int i = 0; i < kMessages; i++) bytes[i] = (char)(i % 101 + 1);
  write_all(ends[1], bytes, sizeof bytes);
  CHECK(receive(ends[0], 1) == kMessages);
  for (int i = 0; i < kMessages; i++) CHECK(messages[i].msg_len == 1 && found[i][0] == bytes[i]);
}

static int of_datagrams(void) {
  const int to = MUST(socket(AF_INET, SOCK_DGRAM, 0)), from = MUST(socket(AF_INET, SOCK_DGRAM, 0));
  struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof name;
  MUST(bind(to, (struct sockaddr*)&name, sizeof name));
  MUST(getsockname(to, (struct sockaddr*)&name, &length));
  const int room = 16 << 20;
  if (!MAY(setsockopt(to, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room))) return 0;
  for (int i = 0; i < kMessages; i++) {
    char text[kSize];
    const size_t size = (size_t)snprintf(text, sizeof text, "%d", i);
    CHECK(sendto(from, text, size, 0, (struct sockaddr*)&name, sizeof name) == (ssize_t)size);
  }
  CHECK(receive(to, kSize) == kMessages);
  for (int i = 0; i < kMessages; i++) CHECK(atoi(found[i]) == i);
  return kMessages;
}

int main(void) {
  of_stream();
  const int datagrams = of_datagrams();
  return ok("%d bytes, %d datagrams, noted %llx", kMessages, datagrams, (unsigned long long)noted);
}
