// A program that attacks its replay: jumps_out ATTACK FILE. Natively, and in a recording, nothing is where it
// looks for the replay's own code (checkpoint/stub.h, interceptors/inprocess/layout.h): it writes "ok" and ends.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  STUB = 0x70000000,       // the code of a stub, followed by what it writes
  STUB_CALL = 0x70000100,  // its system call instruction
  TIER = 0x6f000000,       // the code inside tracees; its fourth word is the address after its instruction
  SLOT = 0x6f020000,       // what that writes
};
static volatile char* const messages = (char*)(1l << 36);  // where the first replayer maps the messages
static const char* file;

static sigjmp_buf back;
static void on_fault(int signal) { siglongjmp(back, signal); }

static int is_there(unsigned long address) {
  if (sigsetjmp(back, 1)) return 0;
  return *(volatile char*)address, 1;
}

static void jump(unsigned long address, long number, long a, long b, long c, long d, long e, long f) {
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("xor %%ebx, %%ebx; jmp *%0"
                   :
                   : "r"(address), "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "memory", "rbx");
}

static unsigned long tier_call(void) { return ((unsigned long*)TIER)[3] - 2; }

static void unlink_by_stub(void) { jump(STUB_CALL, SYS_unlink, (long)file, 0, 0, 0, 0, 0); }
static void open_by_stub(void) { jump(STUB_CALL, SYS_open, (long)file, O_RDWR | O_TRUNC, 0, 0, 0, 0); }
static void kill_by_stub(void) { jump(STUB_CALL, SYS_kill, -1, SIGKILL, 0, 0, 0, 0); }
static void unlink_by_tier(void) { jump(tier_call(), SYS_unlink, (long)file, 0, 0, 0, 0, 0); }
static void open_by_tier(void) { jump(tier_call(), SYS_open, (long)file, O_RDWR | O_TRUNC, 0, 0, 0, 0); }
static void sleep_by_tier(void) { jump(tier_call(), SYS_futex, (long)&file, FUTEX_WAIT, (int)(long)file, 0, 0, 0); }
static void replace_stub(void) {
  jump(STUB_CALL, SYS_mmap, STUB, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS,
       -1, 0);
}
static void replace_stub_by_tier(void) {
  jump(tier_call(), SYS_mmap, STUB, 4096, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
static void unmap_tier(void) { jump(STUB_CALL, SYS_munmap, TIER, 4096, 0, 0, 0, 0); }
static void write_tier(void) { jump(tier_call(), SYS_mprotect, TIER, 4096, PROT_READ | PROT_WRITE, 0, 0, 0); }
static void write_slot(void) { memset((char*)SLOT, 0xff, 0x1000); }
static void write_list(void) { memset((char*)STUB + 4096, 0xff, 4096); }
static void write_messages(void) {
  if (is_there((unsigned long)messages)) memset((char*)messages, 0xff, 4096);
}

static const struct {
  const char* name;
  void (*make)(void);
} attacks[] = {
    {"unlink_by_stub", unlink_by_stub}, {"open_by_stub", open_by_stub},
    {"kill_by_stub", kill_by_stub},     {"unlink_by_tier", unlink_by_tier},
    {"open_by_tier", open_by_tier},     {"sleep_by_tier", sleep_by_tier},
    {"replace_stub", replace_stub},     {"replace_stub_by_tier", replace_stub_by_tier},
    {"unmap_tier", unmap_tier},         {"write_tier", write_tier},
    {"write_slot", write_slot},         {"write_list", write_list},
    {"write_messages", write_messages},
};

static void attack(const char* name) {
  for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
    if (strcmp(name, attacks[i].name) == 0 && is_there(STUB)) attacks[i].make();
  }
}

int main(int count, char** words) {
  if (count == 1) {
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) puts(attacks[i].name);
    return 0;
  }
  file = words[2];
  const struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
  sigaction(SIGSEGV, &action, NULL);
  // A child that sends what its parent needs: the two replays then share memory. Each has files to map.
  int ends[2];
  if (pipe(ends) != 0) return 1;
  const pid_t child = fork();
  if (child == 0) close(ends[0]);
  attack(words[1]);
  char text[64] = "from the child";
  const int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  for (int i = 0; i < 20; i++) {
    char* const mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, self, 0);
    if (mapped == MAP_FAILED || memcmp(mapped, "\177ELF", 4) != 0 || munmap(mapped, 4096) != 0) return 1;
    if (child == 0 && write(ends[1], text, sizeof text) != sizeof text) return 1;
    if (child != 0 && (read(ends[0], text, sizeof text) != sizeof text || strcmp(text, "from the child") != 0)) return 1;
  }
  if (child == 0) return 0;
  int status = 0;
  if (wait(&status) != child || status != 0) return 1;
  return puts("ok") < 0;
}
