// A server with poll over several clients; an idle client's timeouts make series of unsuccessful tests.
#include "test.h"

#include <poll.h>

enum { kClients = 4, kRequests = 30 };

static void client(int fd, unsigned number) {
  char buffer[64];
  for (unsigned i = 0; i < kRequests; i++) {
    (void)compute(number, 2 + (int)number * 3);
    fill(buffer, sizeof buffer, number + i);
    write_all(fd, buffer, sizeof buffer);
    read_all(fd, buffer, sizeof buffer);
    CHECK(is_filled(buffer, sizeof buffer, number + i));
  }
  _exit(0);
}

int main(void) {
  struct pollfd watched[kClients];
  pid_t children[kClients];
  for (unsigned i = 0; i < kClients; i++) {
    int ends[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    if ((children[i] = MUST(fork())) == 0) {
      for (unsigned c = 0; c < i; c++) MUST(close(watched[c].fd));
      MUST(close(ends[0]));
      client(ends[1], i);
    }
    MUST(close(ends[1]));
    watched[i] = (struct pollfd){ends[0], POLLIN, 0};
  }
  int open_clients = kClients, empty = 0;
  uint64_t order = 0;
  while (open_clients > 0) {
    const int ready = MUST(poll(watched, kClients, empty % 3 == 2 ? 1 : 0));
    if (ready == 0) empty++;
    for (unsigned i = 0; i < kClients; i++) {
      if (watched[i].revents == 0) continue;
      char buffer[64];
      const ssize_t n = MUST(read(watched[i].fd, buffer, sizeof buffer));
      order = order * 31 + i;
      if (n == 0) {
        MUST(close(watched[i].fd));
        watched[i].fd = -1;
        open_clients--;
      } else {
        write_all(watched[i].fd, buffer, (size_t)n);
      }
    }
  }
  for (int i = 0; i < kClients; i++) wait_for_exit(children[i], 0);
  return ok("order %016lx, %d empty", order, empty);
}
