// Output by sendfile, splice, tee, vmsplice and copy_file_range, and by write(2) where the kernel does not move it.
#include "test.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

enum { kSize = 30 };

// What `moved` has not moved of a line is written.
static void finish(const char* line, ssize_t moved) {
  CHECK(moved == kSize || moved == -1);
  if (moved < 0) write_all(STDOUT_FILENO, line, kSize);
}

static const char* line_of(const char* call) {
  static char line[kSize + 1];
  snprintf(line, sizeof line, "%-28s.\n", call);
  return line;
}

int main(void) {
  const int file = MUST(open("unseen.data", O_RDWR | O_CREAT | O_TRUNC, 0600));
  MUST(unlink("unseen.data"));
  int ends[2];
  char left[kSize];
  MUST(pipe(ends));

  const char* line = line_of("by sendfile");
  off_t from = 0;
  CHECK(pwrite(file, line, kSize, 0) == kSize);
  finish(line, sendfile(STDOUT_FILENO, file, &from, kSize));

  line = line_of("by copy_file_range");
  from = 0;
  CHECK(pwrite(file, line, kSize, 0) == kSize);
  finish(line, copy_file_range(file, &from, STDOUT_FILENO, NULL, kSize, 0));

  line = line_of("by splice");
  write_all(ends[1], line, kSize);
  ssize_t moved = splice(ends[0], NULL, STDOUT_FILENO, NULL, kSize, 0);
  if (moved < 0) read_all(ends[0], left, kSize);
  finish(line, moved);

  line = line_of("by tee");
  write_all(ends[1], line, kSize);
  finish(line, tee(ends[0], STDOUT_FILENO, kSize, 0));
  read_all(ends[0], left, kSize);

  line = line_of("by vmsplice");
  finish(line, vmsplice(STDOUT_FILENO, &(struct iovec){(void*)line, kSize}, 1, 0));
  return ok("all of it");
}
