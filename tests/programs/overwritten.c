// A program file that is overwritten in place between executions: with different code after a syscall instruction, and with the same code
// there but a jump to it from elsewhere.
// build: -static
#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>

// `site` is mov $39 (getpid), %eax; syscall; nop; nop; nop; ret, and `side` is mov $41, %eax; ret.
__asm__(
    ".text\n"
    ".ascii \"the code to change\"\n"
    "site: mov $39, %eax\n syscall\n nop\n nop\n nop\n ret\n"
    "side: mov $41, %eax\n ret\n nop\n");
int site(void);
int side(void);
static const char marker[] = "the code to change";
enum { kBehindCall = 7, kBehindMov = 11 + 5, kTimes = 4 };

static unsigned char* contents;
static size_t size;

static void read_self(void) {
  const int fd = MUST(open("/proc/self/exe", O_RDONLY));
  struct stat info;
  MUST(fstat(fd, &info));
  size = (size_t)info.st_size;
  contents = malloc(size);
  CHECK(contents && read(fd, contents, size) == (ssize_t)size);
  MUST(close(fd));
}

// Writes the file in its present form, and executes it.
static void run(const char* added, const char* elsewhere) {
  const int fd = MUST(open("copy", O_WRONLY | O_CREAT, 0700));
  for (size_t done = 0; done < size;) done += (size_t)MUST(write(fd, contents + done, size - done));
  MUST(close(fd));
  for (int i = 0; i < kTimes; i++) {
    const pid_t child = MUST(fork());
    if (child == 0) {
      execl("./copy", "copy", added, elsewhere, (char*)NULL);
      _exit(97);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
}

int main(int argc, char** argv) {
  if (argc == 3) {
    for (int i = 0; i < 3; i++) CHECK(site() == (int)syscall(SYS_getpid) + atoi(argv[1]) && side() == atoi(argv[2]));
    return 0;
  }
  read_self();
  // The marker is in the file twice: the code is where `site` follows it.
  unsigned char* code = contents;
  while (memcmp(code, marker, sizeof marker - 1) != 0 || code[sizeof marker - 1] != 0xb8) CHECK(++code < contents + size - 64);
  code += sizeof marker - 1;
  run("0", "41");
  memcpy(code + kBehindCall, "\x83\xc0\x01", 3);  // add $1, %eax
  run("1", "41");
  memcpy(code + kBehindCall, "\x90\x90\x90", 3);
  run("0", "41");
  memcpy(code + kBehindMov, "\xeb\xf6", 2);  // jmp to the second of the nops
  run("0", "41");
  return ok("%d times each", kTimes);
}
