// A program that looks for system call instructions which are not its own: it jumps to each address that it is given, with
// the registers of unlink(FILE), and of open(FILE, O_CREAT). Natively, and in a recording, nothing is there.
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>

static sigjmp_buf back;
static void on_fault(int signal) { siglongjmp(back, signal); }

static void jump(unsigned long address, long number, const char* file, long flags) {
  if (sigsetjmp(back, 1)) return;
  register long mode __asm__("rdx") = 0600;
  __asm__ volatile("jmp *%0" : : "r"(address), "a"(number), "D"(file), "S"(flags), "r"(mode) : "memory");
}

int main(int count, char** words) {
  if (count < 3) return 2;
  const struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
  sigaction(SIGSEGV, &action, NULL);
  sigaction(SIGILL, &action, NULL);
  sigaction(SIGTRAP, &action, NULL);
  for (int i = 2; i < count; i++) {
    const unsigned long address = strtoul(words[i], NULL, 0);
    jump(address, SYS_unlink, words[1], 0);
    jump(address, SYS_open, words[1], O_CREAT | O_WRONLY | O_TRUNC);
  }
  return puts("ok") < 0;
}
