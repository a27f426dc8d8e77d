// FIFOs: opened by both sides in either order, with EOF and a second writer.
#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>

int main(void) {
  char text[16] = {0};
  MUST(mkfifo("fifo.there", 0600));
  MUST(mkfifo("fifo.back", 0600));
  CHECK(open("fifo.there", O_WRONLY | O_NONBLOCK) == -1 && errno == ENXIO);
  const pid_t child = MUST(fork());
  if (child == 0) {
    const int in = MUST(open("fifo.there", O_RDONLY)), out = MUST(open("fifo.back", O_WRONLY));
    for (int i = 0; i < 50; i++) {
      read_all(in, text, 5);
      text[0]++;
      write_all(out, text, 5);
    }
    CHECK(read(in, text, 1) == 0);
    _exit(0);
  }
  const int out = MUST(open("fifo.there", O_WRONLY)), in = MUST(open("fifo.back", O_RDONLY));
  for (int i = 0; i < 50; i++) {
    write_all(out, "hello", 5);
    read_all(in, text, 5);
    CHECK(memcmp(text, "iello", 5) == 0);
  }
  MUST(close(out));
  wait_for_exit(child, 0);
  CHECK(read(in, text, 1) == 0);
  MUST(unlink("fifo.there"));
  MUST(unlink("fifo.back"));
  return ok("fifo");
}
