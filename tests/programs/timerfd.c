// timerfd: single, periodic, polled; the counts that reads return.
#include "test.h"

#include <poll.h>
#include <sys/timerfd.h>

int main(void) {
  uint64_t expired, sum = 0;
  const int fd = MUST(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  MUST(timerfd_settime(fd, 0, &(struct itimerspec){{0, 0}, {0, 20000000}}, NULL));
  struct itimerspec left;
  MUST(timerfd_gettime(fd, &left));
  CHECK(left.it_value.tv_nsec <= 20000000 && left.it_interval.tv_nsec == 0);
  read_all(fd, &expired, sizeof expired);
  CHECK(expired == 1);

  MUST(timerfd_settime(fd, 0, &(struct itimerspec){{0, 5000000}, {0, 5000000}}, NULL));
  int reads = 0;
  while (sum < 20) {
    CHECK(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 10000) == 1);
    read_all(fd, &expired, sizeof expired);
    CHECK(expired >= 1);
    sum += expired;
    if (++reads == 5) pass_checkpoints();  // many expire meanwhile
  }
  MUST(timerfd_settime(fd, 0, &(struct itimerspec){0}, NULL));
  CHECK(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0) == 0);
  return ok("%lu in %d reads", sum, reads);
}
