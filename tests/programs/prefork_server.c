// A pre-fork server: workers accept on one inherited listening socket; which worker serves which client differs from run to run.
#include "test.h"

enum { kWorkers = 3, kClients = 12 };

static void worker(int listener) {
  char line[64];
  for (int served = 0;; served++) {
    const int fd = MUST(accept(listener, NULL, NULL));
    read_all(fd, line, 8);
    if (memcmp(line, "shutdown", 8) == 0) _exit(served);
    (void)compute((uint64_t)line[0], 10);
    const pid_t self = getpid();
    write_all(fd, &self, sizeof self);
    MUST(close(fd));
  }
}

int main(void) {
  struct sockaddr_storage address;
  const int listener = bound_socket(AF_INET, SOCK_STREAM, &address);
  pid_t workers[kWorkers], clients[kClients];
  for (int i = 0; i < kWorkers; i++) {
    if ((workers[i] = MUST(fork())) == 0) worker(listener);
  }
  for (int i = 0; i < kClients; i++) {
    if ((clients[i] = MUST(fork())) != 0) continue;
    const int fd = connected_to(&address);
    write_all(fd, "request!", 8);
    pid_t by;
    read_all(fd, &by, sizeof by);
    for (int w = 0; w < kWorkers; w++) {
      if (by == workers[w]) _exit(w);
    }
    _exit(99);
  }
  int expected[kWorkers] = {0}, total = 0;
  for (int i = 0; i < kClients; i++) {
    int status;
    CHECK(waitpid(clients[i], &status, 0) == clients[i] && WIFEXITED(status) && WEXITSTATUS(status) < kWorkers);
    expected[WEXITSTATUS(status)]++;
  }
  for (int i = 0; i < kWorkers; i++) {
    const int fd = connected_to(&address);
    write_all(fd, "shutdown", 8);
    MUST(close(fd));
  }
  for (int i = 0; i < kWorkers; i++) {
    wait_for_exit(workers[i], expected[i]);
    total += expected[i];
  }
  CHECK(total == kClients);
  return ok("served %d %d %d", expected[0], expected[1], expected[2]);
}
