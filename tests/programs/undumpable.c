// It lets nobody look into it, who is not root, and goes on: maps a file, talks to a child, which inherits that, and executes a program, which
// does not.
#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>

int main(int argc, char** argv) {
  if (argc > 1) {
    CHECK(prctl(PR_GET_DUMPABLE) == 1);
    return ok("executed");
  }
  CHECK(prctl(PR_GET_DUMPABLE) == 1);
  MUST(prctl(PR_SET_DUMPABLE, 0));
  CHECK(prctl(PR_GET_DUMPABLE) == 0);
  FAILS(prctl(PR_SET_DUMPABLE, 7), EINVAL);
  const int fd = MUST(open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0600));
  CHECK(write(fd, "from a file", 11) == 11);
  const char* const mapped = MUST(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
  int ends[2];
  MUST(pipe(ends));
  const pid_t child = MUST(fork());
  if (child == 0) {
    CHECK(prctl(PR_GET_DUMPABLE) == 0);
    CHECK(write(ends[1], mapped, 11) == 11);
    _exit(0);
  }
  char text[11];
  CHECK(read(ends[0], text, sizeof text) == 11 && memcmp(text, mapped, 11) == 0);
  wait_for_exit(child, 0);
  pass_checkpoints();
  execl(argv[0], argv[0], "again", (char*)NULL);
  return 1;
}
