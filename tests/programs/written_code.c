// Code that is written in place of other code, and then spins without a system call until another thread ends it, as a compiler inside a
// program does.
// images: 1
// needs: debug registers
#include <sys/mman.h>

#include "test.h"

enum { kRounds = 3 };

// xor %eax, %eax; 1: inc %rax; cmpl $0, (%rdi); je 1b; ret
static const unsigned char spin[] = {0x31, 0xc0, 0x48, 0xff, 0xc0, 0x83, 0x3f, 0, 0x74, 0xf8, 0xc3};

static volatile int flag;

static void* setter(void* unused) {
  flag = 1;
  return unused;
}

int main(void) {
  unsigned char* page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(page != MAP_FAILED);
  long (*function)(volatile int*);
  memcpy(&function, &page, sizeof function);
  for (int round = 0; round < kRounds; round++) {
    flag = 0;
    pthread_t thread;
    MUST0(pthread_create(&thread, NULL, setter, NULL));
    memset(page, 0x90, 16);  // nop
    memcpy(page + round, spin, sizeof spin);
    const long turns = function(&flag);
    CHECK(turns > 0);
    NOTE(turns);
    MUST0(pthread_join(thread, NULL));
  }
  return ok("%d rounds", kRounds);
}
