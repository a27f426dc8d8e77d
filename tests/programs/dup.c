// dup, dup2, dup3, F_DUPFD: descriptors that share one open file description, its offset and its end of a channel.
#include "test.h"

#include <fcntl.h>

int main(void) {
  int ends[2];
  char text[8] = {0};
  MUST(pipe(ends));
  const int second = MUST(dup(ends[1])), high = MUST(fcntl(ends[1], F_DUPFD_CLOEXEC, 200));
  CHECK(dup2(ends[0], 300) == 300 && dup3(ends[0], 301, O_CLOEXEC) == 301 && dup3(5, 5, 0) == -1 && errno == EINVAL);
  CHECK(high >= 200 && dup2(300, 300) == 300 && dup2(999, 4) == -1 && errno == EBADF);
  MUST(close(ends[0]));
  MUST(close(ends[1]));
  const pid_t child = MUST(fork());
  if (child == 0) {
    write_all(second, "one", 3);
    MUST(dup2(high, STDOUT_FILENO));
    printf("two");
    fflush(stdout);
    _exit(0);
  }
  wait_for_exit(child, 0);
  read_all(301, text, 6);
  CHECK(strcmp(text, "onetwo") == 0);
  MUST(close(second));
  MUST(close(300));
  MUST(close(high));
  CHECK(read(301, text, 1) == 0);

  const int file = MUST(open("dup.data", O_RDWR | O_CREAT | O_TRUNC, 0600)), copy = MUST(dup(file));
  const int apart = MUST(open("dup.data", O_RDONLY));
  write_all(file, "abcdef", 6);
  MUST(unlink("dup.data"));
  CHECK(lseek(copy, 0, SEEK_CUR) == 6 && lseek(copy, 2, SEEK_SET) == 2 && read(file, text, 2) == 2 && text[0] == 'c');
  CHECK(read(apart, text, 2) == 2 && text[0] == 'a');
  MUST(fcntl(file, F_SETFL, O_APPEND | O_NONBLOCK));
  CHECK((fcntl(copy, F_GETFL) & O_NONBLOCK) && !(fcntl(apart, F_GETFL) & O_NONBLOCK));
  MUST(close_range(300, ~0U, 0));
  CHECK(fcntl(301, F_GETFD) == -1 && errno == EBADF);
  return ok("shared");
}
