// eventfd between processes and threads, as counter and as semaphore.
#include "test.h"

#include <sys/eventfd.h>

static void* post(void* fd) {
  for (int i = 0; i < 50; i++) MUST(eventfd_write((int)(intptr_t)fd, 1));
  return NULL;
}

int main(void) {
  eventfd_t value, sum = 0;
  const int there = MUST(eventfd(0, 0)), back = MUST(eventfd(0, 0));
  const pid_t child = MUST(fork());
  if (child == 0) {
    for (eventfd_t i = 1; i <= 100; i++) {
      MUST(eventfd_read(there, &value));
      CHECK(value == i);
      MUST(eventfd_write(back, 2 * i));
    }
    _exit(0);
  }
  for (eventfd_t i = 1; i <= 100; i++) {
    MUST(eventfd_write(there, i));
    MUST(eventfd_read(back, &value));
    CHECK(value == 2 * i);
  }
  wait_for_exit(child, 0);

  const int semaphore = MUST(eventfd(3, EFD_SEMAPHORE | EFD_NONBLOCK));
  for (int i = 0; i < 3; i++) CHECK(eventfd_read(semaphore, &value) == 0 && value == 1);
  CHECK(eventfd_read(semaphore, &value) == -1 && errno == EAGAIN);
  pthread_t id;
  MUST0(pthread_create(&id, NULL, post, (void*)(intptr_t)there));
  int reads = 0;
  while (sum < 50) {
    MUST(eventfd_read(there, &value));
    sum += value;
    reads++;
  }
  MUST0(pthread_join(id, NULL));
  CHECK(sum == 50);
  return ok("%d reads", reads);
}
