// Private mappings of files, as the dynamic linker makes them, again and again: of files that are overwritten, truncated, replaced and
// deleted between open and mmap, past their end, at fixed addresses over other memory and over code, by threads and children.
#include "test.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { kPage = 4096, kPages = 4, kLength = kPages * kPage, kRounds = 12 };

static sigjmp_buf beyond;
static void on_bus_error(int signal) { siglongjmp(beyond, signal); }

static int make(const char* name, int value, size_t length) {
  unsigned char bytes[kLength];
  const int fd = MUST(open(name, O_RDWR | O_CREAT | O_TRUNC, 0700));
  for (size_t i = 0; i < length; i++) bytes[i] = (unsigned char)(value + i / kPage);
  CHECK(write(fd, bytes, length) == (ssize_t)length);
  return fd;
}

static unsigned char* map(int fd, int protection, off_t offset) {
  unsigned char* memory = mmap(NULL, kLength, protection, MAP_PRIVATE, fd, offset);
  CHECK(memory != MAP_FAILED);
  return memory;
}

// Maps the file by its name, and passes what it shows to the kernel, so that a replay compares it.
static void shows(const char* name, int value, int length) {
  const int fd = MUST(open(name, O_RDONLY));
  unsigned char* memory = map(fd, PROT_READ, 0);
  MUST(close(fd));
  for (int i = 0; i < length; i += kPage / 2) CHECK(memory[i] == (unsigned char)(value + i / kPage));
  const int null = MUST(open("/dev/null", O_WRONLY));
  CHECK(write(null, memory, (size_t)length) == length);
  MUST(close(null));
  MUST(munmap(memory, kLength));
}

static void changing_files(void) {
  for (int round = 0; round < kRounds; round++) {
    MUST(close(make("file", round, kLength)));
    shows("file", round, kLength);
    shows("file", round, kLength);
    // The descriptor refers to the old file, whatever happens to its name.
    const int fd = MUST(open("file", O_RDWR));
    MUST(close(make("other", round + 100, kLength)));
    if (round % 3 == 0) MUST(rename("other", "file"));
    if (round % 3 == 1) MUST(unlink("file"));
    unsigned char* old = map(fd, PROT_READ, kPage);
    CHECK(old[0] == (unsigned char)(round + 1));
    MUST(munmap(old, kLength));
    // ... or to its contents, with equal size and at about the same time.
    const unsigned char byte = (unsigned char)(round + 50);
    CHECK(pwrite(fd, &byte, 1, 0) == 1);
    unsigned char* now = map(fd, PROT_READ | PROT_WRITE, 0);
    CHECK(now[0] == byte && now[kPage] == (unsigned char)(round + 1));
    now[1] = 77;  // visible only to the program
    unsigned char in_file = 0;
    CHECK(pread(fd, &in_file, 1, 1) == 1 && in_file == (unsigned char)round);
    MUST(munmap(now, kLength));
    // Another file with the same inode number.
    const int another = make("another", round + 20, kLength);
    MUST(dup2(another, fd));
    MUST(close(another));
    unsigned char* changed = map(fd, PROT_READ, 0);
    CHECK(changed[0] == (unsigned char)(round + 20));
    MUST(munmap(changed, kLength));
    MUST(close(fd));
  }
}

static void beyond_the_end(void) {
  MUST(sigaction(SIGBUS, &(struct sigaction){.sa_handler = on_bus_error}, NULL));
  volatile int faults = 0;
  for (volatile int round = 0; round < kRounds; round++) {
    const int fd = make("short", round, kPage + 10);
    if (round % 2) MUST(ftruncate(fd, 10));
    unsigned char* memory = map(fd, PROT_READ, round % 3 == 2 ? kPage : 0);
    for (volatile int page = 0; page < kPages; page++) {
      if (sigsetjmp(beyond, 1)) {
        faults++;
      } else if (*(volatile unsigned char*)(memory + page * kPage) == 255) {
        _exit(1);
      }
    }
    MUST(munmap(memory, kLength));
    MUST(close(fd));
  }
  CHECK(faults == 34);
  MUST(sigaction(SIGBUS, &(struct sigaction){.sa_handler = SIG_DFL}, NULL));
}

static void fixed_addresses(void) {
  MUST(close(make("low", 1, kLength)));
  MUST(close(make("high", 60, kLength)));
  for (int round = 0; round < kRounds; round++) {
    const int low = MUST(open("low", O_RDONLY)), high = MUST(open("high", O_RDONLY));
    unsigned char* memory = map(low, PROT_READ, 0);
    CHECK(mmap(memory + kPage, kPage, PROT_READ, MAP_PRIVATE | MAP_FIXED, high, 2 * kPage) == memory + kPage);
    CHECK(mmap(memory + 2 * kPage, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) ==
          memory + 2 * kPage);
    CHECK(memory[0] == 1 && memory[kPage] == 62 && memory[2 * kPage] == 0 && memory[3 * kPage] == 4);
    memory[2 * kPage] = 9;
    CHECK(mmap(memory + 2 * kPage, kPage, PROT_READ, MAP_PRIVATE | MAP_FIXED, high, 0) == memory + 2 * kPage);
    CHECK(memory[2 * kPage] == 60);
    // Calls that fail change nothing.
    FAILS((intptr_t)mmap(memory + 1, kPage, PROT_READ, MAP_PRIVATE | MAP_FIXED, high, 0), EINVAL);
    FAILS((intptr_t)mmap(memory, 0, PROT_READ, MAP_PRIVATE | MAP_FIXED, high, 0), EINVAL);
    FAILS((intptr_t)mmap(memory, kPage, PROT_READ, MAP_PRIVATE | MAP_FIXED, high, 7), EINVAL);
    MUST(close(high));
    FAILS((intptr_t)mmap(memory, kPage, PROT_READ, MAP_PRIVATE | MAP_FIXED, high, 0), EBADF);
    CHECK(memory[0] == 1 && memory[2 * kPage] == 60);
    MUST(munmap(memory, kLength));
    MUST(close(low));
  }
  const int directory = MUST(open(".", O_RDONLY | O_DIRECTORY)), zero = MUST(open("/dev/zero", O_RDONLY));
  for (int i = 0; i < 4; i++) {
    FAILS((intptr_t)mmap(NULL, kPage, PROT_READ, MAP_PRIVATE, directory, 0), ENODEV);
    unsigned char* zeros = map(zero, PROT_READ | PROT_WRITE, 0);
    CHECK(zeros[7] == 0);
    zeros[7] = 1;
    MUST(munmap(zeros, kLength));
  }
  MUST(close(directory));
  MUST(close(zero));
}

// mov $39 (getpid), %eax; syscall; add $N, %eax; ret
static int code_file(const char* name, unsigned char added) {
  unsigned char page[kPage];
  const unsigned char code[] = {0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0x83, 0xc0, added, 0xc3};
  memset(page, 0xcc, sizeof page);
  memcpy(page, code, sizeof code);
  const int fd = MUST(open(name, O_RDWR | O_CREAT | O_TRUNC, 0700));
  CHECK(write(fd, page, sizeof page) == sizeof page);
  MUST(close(fd));
  return MUST(open(name, O_RDONLY));
}

static void runs(const unsigned char* code, int added) {
  int (*function)(void);
  memcpy(&function, &code, sizeof function);
  for (int i = 0; i < 3; i++) CHECK(function() == getpid() + added);
}

static void code(void) {
  for (int round = 0; round < kRounds; round++) {
    const int five = code_file("five", 5), seven = code_file(round % 4 ? "seven" : "eight", 7);
    unsigned char* made = mmap(NULL, kPage, PROT_READ | PROT_EXEC, MAP_PRIVATE, five, 0);
    CHECK(made != MAP_FAILED);
    runs(made, 5);
    // Over code that by now runs in the recorder's way.
    CHECK(mmap(made, kPage, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, seven, 0) == made);
    runs(made, 7);
    // Data becomes code.
    CHECK(mmap(made, kPage, PROT_READ, MAP_PRIVATE | MAP_FIXED, five, 0) == made);
    MUST(mprotect(made, kPage, PROT_READ | PROT_EXEC));
    runs(made, 5);
    CHECK(mmap(made, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, seven, 0) == made);
    made[9] = 11;
    MUST(mprotect(made, kPage, PROT_READ | PROT_EXEC));
    runs(made, 11);
    MUST(munmap(made, kPage));
    MUST(close(five));
    MUST(close(seven));
  }
}

static void* in_thread(void* name) {
  for (int i = 0; i < kRounds; i++) shows(name, 30, kLength);
  return NULL;
}

static void others(void) {
  pthread_t threads[2];
  MUST(close(make("common", 30, kLength)));
  for (int i = 0; i < 2; i++) MUST0(pthread_create(&threads[i], NULL, in_thread, "common"));
  in_thread("common");
  for (int i = 0; i < 2; i++) MUST0(pthread_join(threads[i], NULL));
  const pid_t child = MUST(fork());
  if (child == 0) {
    in_thread("common");
    code();
    _exit(4);
  }
  wait_for_exit(child, 4);
  // Descriptors that two address spaces share.
  const int fd = MUST(open("common", O_RDONLY));
  const pid_t sharing = (pid_t)MUST(syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0));
  if (sharing == 0) {
    for (int i = 0; i < kRounds; i++) {
      unsigned char* memory = map(fd, PROT_READ, 0);
      CHECK(memory[0] == 30);
      MUST(munmap(memory, kLength));
    }
    in_thread("common");
    _exit(5);
  }
  wait_for_exit(sharing, 5);
  shows("common", 30, kLength);
}

int main(void) {
  changing_files();
  beyond_the_end();
  fixed_addresses();
  pass_checkpoints();
  code();
  others();
  const int shared = MUST(open("common", O_RDONLY));
  unsigned char* both = mmap(NULL, kLength, PROT_READ, MAP_SHARED, shared, 0);
  CHECK(both != MAP_FAILED && both[kPage] == 31);
  pass_checkpoints();
  shows("common", 30, kLength);
  printf("ok\n");
  return 0;
}
