// A SIGSEGV handler that makes the touched page accessible, as garbage collectors and databases do; and one that skips a trap.
#include "test.h"

#include <sys/mman.h>
#include <ucontext.h>

enum { kPages = 64, kPage = 4096 };
static char* memory;
static volatile sig_atomic_t faults, traps;

static void fix(int signal, siginfo_t* info, void* context) {
  (void)context;
  char* address = (char*)info->si_addr;
  CHECK(signal == SIGSEGV && info->si_code == SEGV_ACCERR && address >= memory && address < memory + kPages * kPage);
  faults++;
  MUST(mprotect((void*)((uintptr_t)address & ~(uintptr_t)(kPage - 1)), kPage, PROT_READ | PROT_WRITE));
}
static void skip(int signal, siginfo_t* info, void* context) {
  (void)info;
  CHECK(signal == SIGILL);
  ((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP] += 2;  // ud2
  traps++;
}
static void breakpoint(int signal) { traps += signal == SIGTRAP; }

int main(void) {
  memory = (char*)MUST(mmap(NULL, kPages * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  MUST(sigaction(SIGSEGV, &(struct sigaction){.sa_sigaction = fix, .sa_flags = SA_SIGINFO}, NULL));
  MUST(sigaction(SIGILL, &(struct sigaction){.sa_sigaction = skip, .sa_flags = SA_SIGINFO}, NULL));
  MUST(sigaction(SIGTRAP, &(struct sigaction){.sa_handler = breakpoint}, NULL));
  for (int i = 0; i < kPages; i++) {
    if (i == kPages / 2) pass_checkpoints();
    memory[i * kPage + i] = (char)i;
  }
  CHECK(faults == kPages);
  for (int i = 0; i < kPages; i++) CHECK(memory[i * kPage + i] == i);
  for (int i = 0; i < 10; i++) __asm__ volatile("ud2");
  for (int i = 0; i < 10; i++) __asm__ volatile("int3");
  CHECK(traps == 20);
  return ok("%d faults", (int)faults);
}
