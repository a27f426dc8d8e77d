// epoll, level- and edge-triggered, over TCP clients, with EPOLLONESHOT for the listener.
#include "test.h"

#include <fcntl.h>
#include <sys/epoll.h>

enum { kClients = 6, kBytes = 5000 };

static void client(const struct sockaddr_storage* address, unsigned number) {
  char data[kBytes], found[kBytes];
  const int fd = connected_to(address);
  fill(data, kBytes, number);
  for (int i = 0; i < 5; i++) {
    for (int part = 0; part < 5; part++) write_all(fd, data + part * 1000, 1000);
    read_all(fd, found, kBytes);
    CHECK(is_filled(found, kBytes, number));
  }
  _exit(0);
}

static void watch(int epoll, int operation, int fd, uint32_t events) {
  MUST(epoll_ctl(epoll, operation, fd, &(struct epoll_event){.events = events, .data.fd = fd}));
}

int main(void) {
  struct sockaddr_storage address;
  const int listener = bound_socket(AF_INET, SOCK_STREAM, &address), epoll = MUST(epoll_create1(EPOLL_CLOEXEC));
  pid_t children[kClients];
  for (unsigned i = 0; i < kClients; i++) {
    if ((children[i] = MUST(fork())) == 0) client(&address, i);
  }
  watch(epoll, EPOLL_CTL_ADD, listener, EPOLLIN | EPOLLONESHOT);
  int finished = 0, wakeups = 0;
  while (finished < kClients) {
    struct epoll_event events[3];
    const int n = MUST(epoll_wait(epoll, events, 3, 10000));
    CHECK(n > 0);
    wakeups++;
    for (int i = 0; i < n; i++) {
      const int fd = events[i].data.fd;
      if (fd == listener) {
        const int accepted = MUST(accept4(listener, NULL, NULL, SOCK_NONBLOCK));
        watch(epoll, EPOLL_CTL_ADD, accepted, EPOLLIN | EPOLLRDHUP | (accepted % 2 ? EPOLLET : 0));
        watch(epoll, EPOLL_CTL_MOD, listener, EPOLLIN | EPOLLONESHOT);
        continue;
      }
      char buffer[700];
      ssize_t got;
      while ((got = read(fd, buffer, sizeof buffer)) > 0) {
        for (ssize_t done = 0; done < got;) {
          const ssize_t sent = write(fd, buffer + done, (size_t)(got - done));
          if (sent > 0) done += sent;
          else CHECK(errno == EAGAIN);
        }
      }
      if (got == 0) MUST(close(fd)), finished++;
      else CHECK(errno == EAGAIN);
    }
  }
  for (int i = 0; i < kClients; i++) wait_for_exit(children[i], 0);
  return ok("%d wakeups", wakeups);
}
