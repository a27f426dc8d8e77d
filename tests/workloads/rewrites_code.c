// A child repeatedly rewrites the same code in place and runs it, without a system call, until its parent kills it after
// so many milliseconds of CPU time.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// xor %eax, %eax; 1: inc %rax; cmp $1000000, %eax; jne 1b; ret
static const unsigned char code[] = {0x31, 0xc0, 0x48, 0xff, 0xc0, 0x3d, 0x40, 0x42, 0x0f, 0x00, 0x75, 0xf6, 0xc3};

int main(int argc, char** argv) {
  unsigned char* page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (argc != 2 || page == MAP_FAILED) return 1;
  void (*function)(void);
  memcpy(&function, &page, sizeof function);
  const pid_t child = fork();
  while (child == 0) {
    memcpy(page, code, sizeof code);
    __asm__ volatile("" ::: "memory");
    function();
  }
  clockid_t clock;
  struct timespec used = {0, 0};
  if (clock_getcpuclockid(child, &clock) != 0) return 1;
  for (const long most = atol(argv[1]); used.tv_sec * 1000 + used.tv_nsec / 1000000 < most; usleep(10000)) {
    if (clock_gettime(clock, &used) != 0) return 1;
  }
  int status = 0;
  if (kill(child, SIGKILL) != 0 || waitpid(child, &status, 0) != child) return 1;
  puts("ok");
  return 0;
}
