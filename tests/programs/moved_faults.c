// Instructions right after system calls that fault: handlers see the program unpatched, and it continues where they say.
// images: 1
#include "test.h"

#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

extern const char load_here[], load_next[], store_here[], store_next[];
static char* page;
static volatile sig_atomic_t loads, stores, elsewhere;
long number = 5;

static void on_fault(int signal, siginfo_t* info, void* context) {
  (void)signal;
  greg_t* const regs = ((ucontext_t*)context)->uc_mcontext.gregs;
  const char* const at = (const char*)regs[REG_RIP];
  if (at == load_here && info->si_addr == page) {
    loads = loads + 1;
    regs[REG_RIP] = (greg_t)load_next;
  } else if (at == store_here && info->si_addr == page + 8) {
    stores = stores + 1;
    if (stores % 2) {
      mprotect(page, 4096, PROT_READ | PROT_WRITE);  // the instruction is then executed again
    } else {
      regs[REG_RIP] = (greg_t)store_next;
    }
  } else {
    elsewhere = elsewhere + 1;
    _exit(97);
  }
}

// getppid(), and what follows its instruction.
static long load(char* from) {
  long result, value = 7;
  asm volatile(
      "syscall\n"
      "load_here: mov (%%rdi), %%rsi\n"
      "load_next: nop"
      : "=a"(result), "+S"(value)
      : "a"(SYS_getppid), "D"(from)
      : "rcx", "r11", "memory");
  CHECK(result == getppid());
  return value;
}
static void store(char* to) {
  long result;
  asm volatile(
      "syscall\n"
      "store_here: movl $9, 8(%%rdi)\n"
      "store_next: nop"
      : "=a"(result)
      : "a"(SYS_getppid), "D"(to)
      : "rcx", "r11", "memory");
  CHECK(result == getppid());
}
static long relative(void) {
  long result, sum = 1;
  asm volatile(
      "syscall\n"
      "add number(%%rip), %%rsi\n"
      "lea number(%%rip), %%rdi"
      : "=a"(result), "+S"(sum)
      : "a"(SYS_getppid)
      : "rcx", "r11", "rdi", "memory");
  CHECK(result == getppid());
  return sum;
}

int main(void) {
  page = MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const struct sigaction caught = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
  MUST(sigaction(SIGSEGV, &caught, NULL));
  *(long*)page = 3;
  const clock_t end = clock() + CLOCKS_PER_SEC / 4;  // long enough for a checkpoint
  int rounds = 0;
  do {
    for (int i = 0; i < 20; i++) {
      CHECK(load(page) == 3);
      MUST(mprotect(page, 4096, PROT_NONE));
      CHECK(load(page) == 7);
      store(page);
      CHECK(*(int*)(page + 8) == 9);
      MUST(mprotect(page, 4096, PROT_READ));
      store(page);
      MUST(mprotect(page, 4096, PROT_READ | PROT_WRITE));
      number = i;
      CHECK(relative() == i + 1);
    }
    rounds++;
  } while (clock() < end || rounds < 20);
  CHECK(loads == rounds * 20 && stores == rounds * 40 && elsewhere == 0);
  return ok("faults where they are");
}
