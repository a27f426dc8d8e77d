// sendmmsg and recvmmsg: several datagrams in one call, fewer received than asked for.
#include "test.h"

enum { kCount = 10, kRoom = 200 };

int main(void) {
  struct sockaddr_storage address;
  char data[kCount][kRoom], found[kCount][kRoom];
  struct iovec out_parts[kCount], in_parts[kCount];
  struct mmsghdr out[kCount], in[kCount];
  const int receiver = bound_socket(AF_INET, SOCK_DGRAM, &address);
  int done[2];
  MUST(pipe(done));
  const pid_t child = MUST(fork());
  if (child == 0) {
    const int sender = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    MUST(connect(sender, (struct sockaddr*)&address, sizeof(struct sockaddr_in)));
    for (unsigned round = 0; round < 20; round++) {
      char byte;
      memset(out, 0, sizeof out);
      for (unsigned i = 0; i < kCount; i++) {
        fill(data[i], 10 * i + 10, round + i);
        out_parts[i] = (struct iovec){data[i], 10 * i + 10};
        out[i].msg_hdr.msg_iov = &out_parts[i];
        out[i].msg_hdr.msg_iovlen = 1;
      }
      CHECK(sendmmsg(sender, out, kCount, 0) == kCount && out[3].msg_len == 40);
      read_all(done[0], &byte, 1);
    }
    _exit(0);
  }
  for (unsigned round = 0; round < 20; round++) {
    unsigned got = 0;
    while (got < kCount) {
      memset(in, 0, sizeof in);
      for (int i = 0; i < kCount; i++) {
        in_parts[i] = (struct iovec){found[i], kRoom};
        in[i].msg_hdr.msg_iov = &in_parts[i];
        in[i].msg_hdr.msg_iovlen = 1;
      }
      const int n = MUST(recvmmsg(receiver, in, kCount - got, MSG_WAITFORONE, NULL));
      CHECK(n > 0);
      for (int i = 0; i < n; i++, got++) {
        CHECK(in[i].msg_len == 10 * got + 10 && is_filled(found[i], in[i].msg_len, round + got));
      }
    }
    write_all(done[1], "d", 1);
  }
  CHECK(recvmmsg(receiver, in, kCount, MSG_DONTWAIT, NULL) == -1 && errno == EAGAIN);
  wait_for_exit(child, 0);
  return ok("%d messages", 20 * kCount);
}
