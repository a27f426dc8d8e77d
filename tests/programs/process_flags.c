// Every command of prctl and arch_prctl: what was set can be read back. This processor or kernel may not have some of them.
#include "test.h"

#include <asm/prctl.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/mman.h>
#include <sys/prctl.h>

static long flag(int command, unsigned long a, unsigned long b, unsigned long c, unsigned long d) {
  return syscall(SYS_prctl, command, a, b, c, d);
}

static void answered_in_memory(void) {
  int number = 77;
  MUST(flag(PR_SET_PDEATHSIG, SIGUSR2, 0, 0, 0));
  MUST(flag(PR_GET_PDEATHSIG, (uintptr_t)&number, 0, 0, 0));
  CHECK(number == SIGUSR2);
  MUST(flag(PR_SET_PDEATHSIG, 0, 0, 0, 0));
  MUST(flag(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
  MUST(flag(PR_GET_CHILD_SUBREAPER, (uintptr_t)&number, 0, 0, 0));
  CHECK(number == 1);
  char name[16] = {0};
  MUST(flag(PR_SET_NAME, (uintptr_t) "another name", 0, 0, 0));
  MUST(flag(PR_GET_NAME, (uintptr_t)name, 0, 0, 0));
  CHECK(strcmp(name, "another name") == 0);
  void* address = NULL;
  if (MAY(flag(PR_GET_TID_ADDRESS, (uintptr_t)&address, 0, 0, 0), EINVAL)) CHECK(address != NULL);
  unsigned long auxiliary[100] = {0};
  long size = -1;
  if (MAY(size = flag(0x41555856 /* PR_GET_AUXV */, (uintptr_t)auxiliary, sizeof auxiliary, 0, 0), EINVAL)) {
    CHECK(size > 0);
    NOTE(auxiliary);
  }
}

static void set_and_found(int set, int get, unsigned long value) {
  if (MAY(flag(set, value, 0, 0, 0), EINVAL)) CHECK(flag(get, 0, 0, 0, 0) == (long)value);
}

static void answered_by_result(void) {
  set_and_found(PR_SET_DUMPABLE, PR_GET_DUMPABLE, 1);
  set_and_found(PR_SET_KEEPCAPS, PR_GET_KEEPCAPS, 1);
  set_and_found(PR_SET_KEEPCAPS, PR_GET_KEEPCAPS, 0);
  set_and_found(PR_SET_TIMERSLACK, PR_GET_TIMERSLACK, 60000);
  set_and_found(PR_SET_TIMING, PR_GET_TIMING, PR_TIMING_STATISTICAL);
  set_and_found(PR_SET_THP_DISABLE, PR_GET_THP_DISABLE, 1);
  set_and_found(PR_SET_IO_FLUSHER, PR_GET_IO_FLUSHER, 1);
  MAY(flag(PR_SET_IO_FLUSHER, 0, 0, 0, 0), EINVAL);
  MAY(flag(PR_GET_IO_FLUSHER, 0, 0, 0, 0), EINVAL);
  MAY(flag(PR_GET_TIMING, 0, 0, 0, 0), EINVAL);
  MAY(flag(PR_GET_THP_DISABLE, 0, 0, 0, 0), EINVAL);
  set_and_found(67 /* PR_SET_MEMORY_MERGE */, 68 /* PR_GET_MEMORY_MERGE */, 0);
  MAY(flag(68, 0, 0, 0, 0), EINVAL);
  MAY(flag(66 /* PR_GET_MDWE */, 0, 0, 0, 0), EINVAL);
  MAY(flag(77 /* PR_TIMER_CREATE_RESTORE_IDS */, 2, 0, 0, 0), EINVAL);
  MAY(flag(78 /* PR_FUTEX_HASH */, 2, 0, 0, 0), EINVAL);
  set_and_found(PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS, 1);
  const long kill_policy = MUST(flag(PR_MCE_KILL_GET, 0, 0, 0, 0));
  MUST(flag(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0));
  CHECK(flag(PR_MCE_KILL_GET, 0, 0, 0, 0) == PR_MCE_KILL_EARLY);
  NOTE(kill_policy);
  MUST(flag(PR_TASK_PERF_EVENTS_DISABLE, 0, 0, 0, 0));
  MUST(flag(PR_TASK_PERF_EVENTS_ENABLE, 0, 0, 0, 0));
  MAY(flag(PR_SET_PTRACER, (unsigned long)getppid(), 0, 0, 0), EINVAL);
  const long speculation = flag(PR_GET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, 0, 0, 0);
  CHECK(speculation >= 0 || errno == ENODEV || errno == EINVAL);
  MAY(flag(PR_SET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, PR_SPEC_ENABLE, 0, 0), ENODEV, ENXIO, EINVAL);
}

static void privileges(void) {
  CHECK(flag(PR_CAPBSET_READ, CAP_CHOWN, 0, 0, 0) >= 0);
  if (MAY(flag(PR_CAPBSET_DROP, CAP_SYS_BOOT, 0, 0, 0))) CHECK(flag(PR_CAPBSET_READ, CAP_SYS_BOOT, 0, 0, 0) == 0);
  CHECK(flag(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_CHOWN, 0, 0) == 0);
  const long bits = MUST(flag(PR_GET_SECUREBITS, 0, 0, 0, 0));
  if (MAY(flag(PR_SET_SECUREBITS, bits | SECBIT_NO_SETUID_FIXUP, 0, 0, 0))) {
    CHECK(flag(PR_GET_SECUREBITS, 0, 0, 0, 0) == (bits | SECBIT_NO_SETUID_FIXUP));
  }
}

// Commands of other architectures, and memory protection that kernels and processors no longer have.
static void not_here(void) {
  int number = 77;
  const int gets[] = {PR_GET_UNALIGN, PR_GET_FPEMU, PR_GET_FPEXC, PR_GET_ENDIAN};
  const int sets[] = {PR_SET_UNALIGN, PR_SET_FPEMU, PR_SET_FPEXC, PR_SET_ENDIAN};
  for (int i = 0; i < 4; i++) {
    FAILS(flag(gets[i], (uintptr_t)&number, 0, 0, 0), EINVAL);
    FAILS(flag(sets[i], 0, 0, 0, 0), EINVAL);
  }
  MAY(flag(PR_MPX_ENABLE_MANAGEMENT, 0, 0, 0, 0), EINVAL, ENXIO);
  MAY(flag(PR_MPX_DISABLE_MANAGEMENT, 0, 0, 0, 0), EINVAL, ENXIO);
  CHECK(number == 77);
}

static void segments(void) {
  unsigned long fs = 0, gs = 77, word = 4711, read = 0;
  MUST(syscall(SYS_arch_prctl, ARCH_GET_FS, &fs));
  CHECK(fs == (unsigned long)pthread_self());
  MUST(syscall(SYS_arch_prctl, ARCH_SET_FS, fs));
  MUST(syscall(SYS_arch_prctl, ARCH_GET_GS, &gs));
  CHECK(gs == 0);
  MUST(syscall(SYS_arch_prctl, ARCH_SET_GS, &word));
  MUST(syscall(SYS_arch_prctl, ARCH_GET_GS, &gs));
  CHECK(gs == (uintptr_t)&word);
  pass_checkpoints();
  __asm__ volatile("mov %%gs:0, %0" : "=r"(read));
  CHECK(read == 4711);
  unsigned long shadow = 0;
  MAY(syscall(SYS_arch_prctl, 0x5005 /* ARCH_SHSTK_STATUS */, &shadow), EINVAL, EOPNOTSUPP);
  MAY(syscall(SYS_arch_prctl, 0x3001 /* ARCH_CET_STATUS */, &shadow), EINVAL, EOPNOTSUPP);
}

// A process that may not make memory executable keeps this restriction.
static void no_new_code(void) {
  const pid_t child = MUST(fork());
  if (child == 0) {
    char* const page = MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (MAY(flag(65 /* PR_SET_MDWE */, 1, 0, 0, 0), EINVAL)) {
      CHECK(flag(66 /* PR_GET_MDWE */, 0, 0, 0, 0) == 1);
      FAILS(mprotect(page, 4096, PROT_READ | PROT_EXEC), EACCES);
    }
    _exit(0);
  }
  wait_for_exit(child, 0);
}

int main(void) {
  answered_in_memory();
  answered_by_result();
  privileges();
  not_here();
  segments();
  no_new_code();
  return ok("%016lx", noted);
}
