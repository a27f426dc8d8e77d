// Non-blocking writes larger than the pipe and reads smaller than what was written: short counts, EAGAIN, byte ranges that cross.
#include "test.h"

#include <fcntl.h>
#include <poll.h>

enum { kSize = 1 << 20 };
static char data[kSize], found[kSize];

int main(void) {
  int ends[2];
  MUST(pipe2(ends, O_NONBLOCK));
  MUST(fcntl(ends[0], F_SETPIPE_SZ, 16384));
  fill(data, kSize, 5);
  const pid_t child = MUST(fork());
  if (child == 0) {
    MUST(close(ends[0]));
    int shorts = 0;
    for (size_t done = 0; done < kSize;) {
      const ssize_t n = write(ends[1], data + done, kSize - done);
      if (n < 0) {
        CHECK(errno == EAGAIN);
        CHECK(poll(&(struct pollfd){ends[1], POLLOUT, 0}, 1, -1) == 1);
      } else {
        shorts += (size_t)n < kSize - done;
        done += (size_t)n;
      }
    }
    CHECK(shorts > 0);
    _exit(0);
  }
  MUST(close(ends[1]));
  size_t done = 0;
  for (size_t step = 1;; step = step * 7 % 50021) {
    const size_t room = kSize - done;
    const ssize_t n = room ? read(ends[0], found + done, step < room ? step : room) : read(ends[0], data, 1);
    if (n == 0) break;
    if (n < 0) {
      CHECK(errno == EAGAIN && poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, -1) == 1);
    } else {
      done += (size_t)n;
    }
  }
  CHECK(done == kSize && is_filled(found, kSize, 5));
  wait_for_exit(child, 0);
  return ok("%d bytes", kSize);
}
