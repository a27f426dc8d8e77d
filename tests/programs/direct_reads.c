// Reads of files that were opened with O_DIRECT: at a file's end the kernel writes more into the buffer than the call
// says.
#include "test.h"

#include <fcntl.h>
#include <sys/uio.h>

enum { kBlock = 4096, kSize = kBlock + 904, kRoom = 3 * kBlock };

static unsigned char* room;
static unsigned long sum;

// What the program finds in the whole buffer becomes a part of its output.
static void look(long got, long expected) {
  CHECK(got == expected);
  for (size_t i = 0; i < kRoom; i++) sum = sum * 31 + room[i];
  memset(room, 'z', kRoom);
}

int main(void) {
  char name[] = "./directXXXXXX";
  char content[kSize];
  memset(content, 'a', kSize);
  const int made = mkstemp(name);
  CHECK(made >= 0 && write(made, content, kSize) == kSize);
  MUST0(fsync(made));
  MUST0(close(made));
  const int file = open(name, O_RDONLY | O_DIRECT);
  if (file < 0) return skipped("this file system has no O_DIRECT");
  MUST0(unlink(name));
  MUST0(posix_memalign((void**)&room, kBlock, kRoom));
  memset(room, 'z', kRoom);
  look(read(file, room, kRoom), kSize);
  look(pread(file, room, kBlock, kBlock), kSize - kBlock);
  struct iovec parts[] = {{room, kBlock}, {room + 2 * kBlock, kBlock}};
  look(preadv(file, parts, 2, 0), kSize);
  look(preadv2(file, parts, 2, 0, 0), kSize);
  CHECK(lseek(file, 0, SEEK_SET) == 0);
  look(readv(file, parts, 2), kSize);
  const int flags = fcntl(file, F_GETFL);
  MUST0(fcntl(file, F_SETFL, flags & ~O_DIRECT));
  look(pread(file, room, kRoom, 0), kSize);
  MUST0(fcntl(file, F_SETFL, flags));
  look(pread(file, room, kRoom, 0), kSize);
  return ok("%lx", sum);
}
