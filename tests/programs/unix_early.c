// Clients that connect to a unix stream server and send before it accepts them.
#include "test.h"

#include <sys/un.h>

enum { kClients = 4, kSends = 25, kSize = 200 };

static void client(const struct sockaddr_un* address, unsigned number, int sent) {
  const int fd = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
  char buffer[kSize];
  MUST(connect(fd, (const struct sockaddr*)address, sizeof *address));
  for (unsigned i = 0; i < kSends; i++) {
    fill(buffer, kSize, number * kSends + i);
    write_all(fd, buffer, kSize);
  }
  write_all(sent, "s", 1);
  read_all(fd, buffer, kSize);
  CHECK(is_filled(buffer, kSize, number));
  _exit((int)number);
}

int main(void) {
  const struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "early.socket"};
  const int listener = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
  MUST(bind(listener, (const struct sockaddr*)&address, sizeof address));
  MUST(listen(listener, kClients));
  for (unsigned i = 0; i < kClients; i++) {
    int sent[2];
    char buffer[kSize];
    MUST(pipe(sent));
    const pid_t child = MUST(fork());
    if (child == 0) client(&address, i, sent[1]);
    read_all(sent[0], buffer, 1);
    const int fd = MUST(accept(listener, NULL, NULL));
    for (unsigned j = 0; j < kSends; j++) {
      read_all(fd, buffer, kSize);
      CHECK(is_filled(buffer, kSize, i * kSends + j));
    }
    fill(buffer, kSize, i);
    write_all(fd, buffer, kSize);
    wait_for_exit(child, (int)i);
    MUST(close(fd));
    MUST(close(sent[0]));
    MUST(close(sent[1]));
  }
  return ok("%d clients", kClients);
}
