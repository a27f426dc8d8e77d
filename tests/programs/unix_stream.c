// A unix stream server at a path and at an abstract name: several clients, peer credentials, names.
#include "test.h"

#include <sys/un.h>

enum { kClients = 4 };

static void client(const struct sockaddr_un* address, socklen_t length, unsigned number) {
  const int fd = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
  char buffer[500];
  MUST(connect(fd, (const struct sockaddr*)address, length));
  for (unsigned i = 0; i < 20; i++) {
    fill(buffer, sizeof buffer, number * 50 + i);
    write_all(fd, buffer, sizeof buffer);
    read_all(fd, buffer, sizeof buffer);
    CHECK(is_filled(buffer, sizeof buffer, number * 50 + i));
  }
  _exit((int)number);
}

static void serve(const struct sockaddr_un* address, socklen_t length) {
  const int listener = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
  MUST(bind(listener, (const struct sockaddr*)address, length));
  MUST(listen(listener, kClients));
  pid_t children[kClients];
  for (unsigned i = 0; i < kClients; i++) {
    if ((children[i] = MUST(fork())) == 0) client(address, length, i);
  }
  for (int i = 0; i < kClients; i++) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    struct sockaddr_un name;
    socklen_t name_length = sizeof name;
    const int fd = MUST(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
    MUST(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size));
    int known = 0;
    for (int c = 0; c < kClients; c++) known += children[c] == peer.pid;
    CHECK(known == 1 && peer.uid == getuid());
    MUST(getsockname(fd, (struct sockaddr*)&name, &name_length));
    CHECK(name_length == length && memcmp(&name, address, length) == 0);
    char buffer[500];
    for (int j = 0; j < 20; j++) {
      read_all(fd, buffer, sizeof buffer);
      write_all(fd, buffer, sizeof buffer);
    }
    CHECK(read(fd, buffer, 1) == 0);
    MUST(close(fd));
  }
  for (int i = 0; i < kClients; i++) wait_for_exit(children[i], i);
  MUST(close(listener));
}

int main(void) {
  struct sockaddr_un path = {.sun_family = AF_UNIX, .sun_path = "unix.socket"}, abstract = {.sun_family = AF_UNIX};
  serve(&path, (socklen_t)(sizeof(sa_family_t) + sizeof "unix.socket"));
  MUST(unlink("unix.socket"));
  const int length = snprintf(abstract.sun_path + 1, 100, "redrive-test-%d", getpid());
  serve(&abstract, (socklen_t)(sizeof(sa_family_t) + 1 + (size_t)length));
  return ok("%d clients", 2 * kClients);
}
