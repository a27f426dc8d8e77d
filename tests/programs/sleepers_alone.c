// Threads sleep one after the other, each for as long as all the others do; a signal, a timeout or another process wakes it up.
#include "test.h"

#include <poll.h>
#include <sys/epoll.h>
#include <time.h>

enum { kRounds = 1200 };

static void* sleeps(void* fd) {
  char byte;
  CHECK(read((int)(intptr_t)fd, &byte, 1) == 0);
  return NULL;
}

int main(void) {
  int there[2], back[2], end[2];
  MUST(pipe(there));
  MUST(pipe(back));
  MUST(pipe(end));
  const pid_t child = MUST(fork());
  if (child == 0) {
    MUST(close(there[1]));
    char byte;
    while (read(there[0], &byte, 1) == 1) CHECK(write(back[1], &byte, 1) == 1);
    _exit(0);
  }
  MUST(close(there[0]));
  pthread_t thread;
  MUST0(pthread_create(&thread, NULL, sleeps, (void*)(intptr_t)end[0]));
  const int epoll = MUST(epoll_create1(0));
  struct epoll_event event = {.events = EPOLLIN, .data.u64 = 9};
  MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, back[0], &event));
  for (int i = 0; i < kRounds; i++) {
    char byte = (char)i, got = 0;
    CHECK(write(there[1], &byte, 1) == 1);
    event.data.u64 = 0;
    CHECK(epoll_wait(epoll, &event, 1, 10000) == 1 && event.data.u64 == 9);
    CHECK(read(back[0], &got, 1) == 1 && got == byte);
    const struct timespec soon = {0, 20000};
    CHECK(nanosleep(&soon, NULL) == 0);
  }
  MUST(close(there[1]));
  wait_for_exit(child, 0);
  MUST(close(end[1]));
  MUST0(pthread_join(thread, NULL));
  return ok("%d", kRounds);
}
