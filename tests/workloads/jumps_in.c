// A program that attacks its recorder: jumps_in ATTACK FILE. It looks for the code inside tracees
// (interceptors/inprocess/layout.h), and writes the result of the attack: "refused", "succeeded", or "nothing there".
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TIER = 0x6f000000, COMMON = 0x1f000, SLOT = 0x6f020000, SLOT_SIZE = 0x105000 };
enum { EXECUTED = 3, INJECTED = 7 };  // words at its start: the addresses right after its system call instructions
static const char* file;

static sigjmp_buf back;
static void on_fault(int signal) { siglongjmp(back, signal); }

// Uses an instruction of the tier, after which it returns by pop %rbx; ret.
__attribute__((naked)) static long make(unsigned long instruction, long number, long a, long b, long c, long d) {
  __asm__("push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
          "lea 1f(%rip), %rax; push %rax; push %rbx; xor %ebx, %ebx\n"
          "mov %rdi, %r11; mov %rsi, %rax; mov %rdx, %rdi; mov %rcx, %rsi; mov %r8, %rdx; mov %r9, %r10\n"
          "mov $-1, %r8; xor %r9d, %r9d; jmp *%r11\n"
          "1: pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; ret");
}

static long call(int behind, long number, long a, long b, long c, long d) {
  return make(((unsigned long*)TIER)[behind] - 2, number, a, b, c, d);
}

static int fails(long result, int error) { return result == -error; }

static int fork_by_tier(void) { return call(EXECUTED, SYS_clone, CLONE_UNTRACED | SIGCHLD, 0, 0, 0), 0; }
static int fork_by_injection(void) { return call(INJECTED, SYS_clone, CLONE_UNTRACED | SIGCHLD, 0, 0, 0), 0; }
static int execute_by_tier(void) {
  char* argv[] = {"/bin/rm", (char*)file, NULL};
  return call(EXECUTED, SYS_execve, (long)argv[0], (long)argv, 0, 0), 0;
}
static int open_by_injection(void) { return call(INJECTED, SYS_open, (long)file, O_RDWR | O_TRUNC, 0, 0), 0; }
static int trace_by_tier(void) { return call(EXECUTED, SYS_ptrace, 16, getppid(), 0, 0), 0; }

// The file that is mapped there, opened for writing; only root may do so.
static int open_mapped(unsigned start, unsigned size) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/map_files/%x-%x", start, start + size);
  return open(path, O_RDWR);
}

// All processes run the code that is there.
static int write_code(void) {
  return fails(call(EXECUTED, SYS_mprotect, TIER, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, 0), EACCES);
}
static int map_code(void) {
  const int fd = open_mapped(TIER, COMMON);
  if (fd < 0) return 1;
  const int mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED;
  return !mapped && write(fd, "x", 1) < 0 && ftruncate(fd, 0) < 0;
}
// What the recorder has mapped must stay there.
static int cut_slot(void) {
  const int fd = open_mapped(SLOT, SLOT_SIZE);
  return fd < 0 || (ftruncate(fd, 0) < 0 && ftruncate(fd, 1 << 24) < 0);
}
// After a slot there could be another process's slot.
static int grow_slot(void) {
  return call(EXECUTED, SYS_mremap, SLOT, SLOT_SIZE, 2 * SLOT_SIZE, MREMAP_MAYMOVE), 0;
}

static const struct {
  const char* name;
  int (*make)(void);
} attacks[] = {{"fork_by_tier", fork_by_tier},
               {"fork_by_injection", fork_by_injection},
               {"execute_by_tier", execute_by_tier},
               {"open_by_injection", open_by_injection},
               {"trace_by_tier", trace_by_tier},
               {"write_code", write_code},
               {"map_code", map_code},
               {"cut_slot", cut_slot},
               {"grow_slot", grow_slot}};
enum { COUNT = sizeof attacks / sizeof *attacks };

int main(int argc, char** argv) {
  if (argc < 3) {
    for (int i = 0; i < COUNT; i++) puts(attacks[i].name);
    return 0;
  }
  file = argv[2];
  signal(SIGSEGV, on_fault);
  if (sigsetjmp(back, 1)) {
    puts("nothing there");
    return 0;
  }
  (void)*(volatile char*)TIER;
  signal(SIGSEGV, SIG_DFL);
  for (int i = 0; i < COUNT; i++) {
    if (!strcmp(argv[1], attacks[i].name)) puts(attacks[i].make() ? "refused" : "succeeded");
  }
  return 0;
}
