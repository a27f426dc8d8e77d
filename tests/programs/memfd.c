// A memfd shared by a parent and a child that maps it after an exec; seals; shared file mappings written on both sides.
#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { kSize = 65536 };

static volatile unsigned char* map(int fd) {
  return (volatile unsigned char*)MUST(mmap(NULL, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
}

int main(int argc, char** argv) {
  if (argc > 1) {
    volatile unsigned char* memory = map(atoi(argv[1]));
    for (int i = 0; i < 50; i++) {
      char byte;
      read_all(STDIN_FILENO, &byte, 1);
      CHECK(memory[i * 1000] == i + 1);
      memory[i * 1000 + 1] = (unsigned char)(i + 2);
      write_all(STDOUT_FILENO, "r", 1);
    }
    return 0;
  }
  const int fd = MUST(memfd_create("shared", MFD_ALLOW_SEALING));
  int there[2], back[2];
  char number[16];
  MUST(pipe(there));
  MUST(pipe(back));
  MUST(ftruncate(fd, kSize));
  MUST(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
  CHECK(ftruncate(fd, 100) == -1 && errno == EPERM);
  volatile unsigned char* memory = map(fd);
  snprintf(number, sizeof number, "%d", fd);
  const pid_t child = MUST(fork());
  if (child == 0) {
    MUST(dup2(there[0], STDIN_FILENO));
    MUST(dup2(back[1], STDOUT_FILENO));
    execl("/proc/self/exe", "memfd", number, (char*)NULL);
    _exit(127);
  }
  for (int i = 0; i < 50; i++) {
    char byte;
    memory[i * 1000] = (unsigned char)(i + 1);
    write_all(there[1], "g", 1);
    read_all(back[0], &byte, 1);
    CHECK(memory[i * 1000 + 1] == i + 2);
    if (i == 25) pass_checkpoints();
  }
  wait_for_exit(child, 0);
  unsigned char byte;
  CHECK(pread(fd, &byte, 1, 49001) == 1 && byte == 51);
  return ok("50 turns");
}
