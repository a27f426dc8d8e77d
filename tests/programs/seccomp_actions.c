// A program's own seccomp filters: each action has the effect that seccomp(2) describes, sees the program's own numbers, arguments and
// instruction pointer, and is inherited by threads, forks and programs.
#include "test.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <ucontext.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ANSWER(value) BPF_STMT(BPF_RET | BPF_K, value)
#define IF(value, then, otherwise) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, then, otherwise)

static long install(struct sock_filter* filter, size_t count, unsigned flags) {
  struct sock_fprog program = {(unsigned short)count, filter};
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}
#define INSTALL(filter, flags) install(filter, sizeof(filter) / sizeof *(filter), flags)

// This call gets this answer, whatever its arguments; all others are allowed.
static void answer_call(int number, uint32_t answer) {
  struct sock_filter filter[] = {LOAD(nr), IF((uint32_t)number, 0, 1), ANSWER(answer), ANSWER(SECCOMP_RET_ALLOW)};
  MUST(INSTALL(filter, 0));
}

static void in_child(void (*body)(void), int signal, int status) {
  const pid_t child = MUST(fork());
  if (child == 0) {
    body();
    _exit(status);
  }
  int found = 0;
  CHECK(MUST(waitpid(child, &found, 0)) == child);
  if (signal) {
    CHECK(WIFSIGNALED(found) && WTERMSIG(found) == signal);
  } else {
    CHECK(WIFEXITED(found) && WEXITSTATUS(found) == status);
  }
}

static void errors(void) {
  char byte = 0;
  answer_call(SYS_mkdirat, SECCOMP_RET_ERRNO | EDQUOT);
  FAILS(mkdirat(AT_FDCWD, "never", 0700), EDQUOT);
  answer_call(SYS_mkdirat, SECCOMP_RET_ERRNO | EMFILE);  // of equal actions, the newest one counts
  FAILS(mkdirat(AT_FDCWD, "never", 0700), EMFILE);
  answer_call(SYS_mkdirat, SECCOMP_RET_LOG);  // the strictest one of all counts
  FAILS(mkdirat(AT_FDCWD, "never", 0700), EMFILE);
  answer_call(SYS_unlinkat, SECCOMP_RET_ERRNO | 0xffff);
  FAILS(syscall(SYS_unlinkat, AT_FDCWD, "never", 0), 4095);
  answer_call(SYS_getppid, SECCOMP_RET_TRACE | 7);
  FAILS(syscall(SYS_getppid), ENOSYS);
  answer_call(SYS_umask, SECCOMP_RET_USER_NOTIF);
  FAILS((int)syscall(SYS_umask, 0), ENOSYS);
  // Success without effect, for calls that a replay would execute.
  char* page = MUST(mmap(NULL, 4096, 3, 0x22, -1, 0));
  page[0] = 'p';
  answer_call(SYS_munmap, SECCOMP_RET_ERRNO);
  answer_call(SYS_mprotect, SECCOMP_RET_ERRNO);
  answer_call(SYS_fork, SECCOMP_RET_ERRNO);
  answer_call(SYS_execve, SECCOMP_RET_ERRNO);
  CHECK(munmap(page, 4096) == 0 && mprotect(page, 4096, 0) == 0 && page[0] == 'p');
  CHECK(syscall(SYS_fork) == 0);
  CHECK(syscall(SYS_execve, "/bin/false", NULL, NULL) == 0);
  answer_call(SYS_mmap, SECCOMP_RET_ERRNO | ENOMEM);
  FAILS(syscall(SYS_mmap, 0, 4096, 3, 0x22, -1, 0), ENOMEM);
  // Calls that are served inside the program, again and again.
  const int fd = MUST(open("/dev/zero", O_RDONLY));
  for (int i = 0; i < 100; i++) CHECK(read(fd, &byte, 1) == 1);
  answer_call(SYS_read, SECCOMP_RET_ERRNO | EIO);
  for (int i = 0; i < 100; i++) FAILS(read(fd, &byte, 1), EIO);
  answer_call(SYS_exit_group, SECCOMP_RET_ERRNO | EBUSY);
  FAILS(syscall(SYS_exit_group, 1), EBUSY);
  syscall(SYS_exit, 11);
}

static void by_arguments(void) {
  struct sock_filter filter[] = {
      LOAD(arch),    IF(AUDIT_ARCH_X86_64, 1, 0),
      ANSWER(SECCOMP_RET_KILL_PROCESS),
      LOAD(nr),      IF(SYS_dup, 0, 7),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff),
      BPF_STMT(BPF_ST, 3),
      BPF_STMT(BPF_LDX | BPF_MEM, 3),
      BPF_STMT(BPF_LD | BPF_IMM, 77),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 1),
      ANSWER(SECCOMP_RET_ERRNO | ENOTTY),
      ANSWER(SECCOMP_RET_ALLOW),
  };
  MUST(INSTALL(filter, 0));
  FAILS(dup(77), ENOTTY);
  FAILS(dup(78), EBADF);
  for (int i = 0; i < 50; i++) {
    const int copy = MUST(dup(0));
    MUST(close(copy));
  }
}

// The call is only allowed from one place.
static void by_place(void) {
  long result = SYS_getsid;
  extern char behind_call[] __asm__("behind_call");
  const uint64_t place = (uint64_t)behind_call;
  struct sock_filter filter[] = {
      LOAD(nr), IF(SYS_getsid, 0, 5),
      LOAD(instruction_pointer), IF((uint32_t)place, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4), IF((uint32_t)(place >> 32), 0, 1),
      ANSWER(SECCOMP_RET_ERRNO | EXDEV), ANSWER(SECCOMP_RET_ALLOW),
  };
  MUST(INSTALL(filter, 0));
  for (int i = 0; i < 20; i++) {
    result = SYS_getsid;
    if (i == 0) {
      CHECK(syscall(SYS_getsid, 0) > 0);
    }
    __asm__ volatile(".ifndef behind_call\nsyscall\nbehind_call:\n.else\nsyscall\n.endif" : "+a"(result) : "D"(0L) : "rcx", "r11", "memory");
    CHECK(result == -EXDEV);
  }
}

static volatile sig_atomic_t trapped;
static void on_trap(int signal, siginfo_t* info, void* context) {
  ucontext_t* const frame = context;
  CHECK(signal == SIGSYS && info->si_code == 1 /* SYS_SECCOMP */ && info->si_errno == 42);
  CHECK(info->si_syscall == SYS_getpgid && info->si_arch == AUDIT_ARCH_X86_64);
  CHECK((char*)info->si_call_addr == (char*)frame->uc_mcontext.gregs[REG_RIP]);
  CHECK(frame->uc_mcontext.gregs[REG_RAX] == SYS_getpgid && frame->uc_mcontext.gregs[REG_RDI] == 1234);
  trapped++;
  frame->uc_mcontext.gregs[REG_RAX] = 5678;
}
static void traps(void) {
  struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
  MUST(sigaction(SIGSYS, &action, NULL));
  for (int i = 0; i < 50; i++) CHECK(syscall(SYS_getpgid, 0) > 0);
  answer_call(SYS_getpgid, SECCOMP_RET_TRAP | 42);
  for (int i = 0; i < 50; i++) CHECK(syscall(SYS_getpgid, 1234) == 5678);
  CHECK(trapped == 50);
}
static void uncaught_trap(void) {
  answer_call(SYS_getpgid, SECCOMP_RET_TRAP);
  syscall(SYS_getpgid, 0);
}
static void ignored_trap(void) {
  signal(SIGSYS, SIG_IGN);
  uncaught_trap();
}
static void blocked_trap(void) {
  struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
  MUST(sigaction(SIGSYS, &action, NULL));
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGSYS);
  MUST(sigprocmask(SIG_BLOCK, &set, NULL));
  uncaught_trap();
}

static void kill_process(void) {
  answer_call(SYS_getsid, SECCOMP_RET_KILL_PROCESS);
  syscall(SYS_getsid, 0);
}
static void kill_only_thread(void) {
  answer_call(SYS_getsid, SECCOMP_RET_KILL_THREAD);
  syscall(SYS_getsid, 0);
}
static void unknown_action(void) {
  answer_call(SYS_getsid, 0x12340000);
  syscall(SYS_getsid, 0);
}

static void* killed_thread(void* argument) {
  answer_call(SYS_getsid, SECCOMP_RET_KILL_THREAD);
  if (argument) {
    answer_call(SYS_exit_group, SECCOMP_RET_KILL_THREAD);
    syscall(SYS_exit_group, 1);
  }
  syscall(SYS_getsid, 0);
  CHECK(!"killed");
  return NULL;
}
static void kill_thread(void) {
  for (intptr_t i = 0; i < 2; i++) {
    pthread_t thread;
    MUST0(pthread_create(&thread, NULL, killed_thread, (void*)i));
    MUST0(pthread_join(thread, NULL));  // the kernel clears its word
  }
  CHECK(syscall(SYS_getsid, 0) >= 0);  // the filter applied only to that thread
}

static void strict_exit(void) {
  int pipes[2];
  char byte = 'x';
  MUST(pipe(pipes));
  CHECK(prctl(PR_GET_SECCOMP) == 0);
  MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
  CHECK(write(pipes[1], &byte, 1) == 1 && read(pipes[0], &byte, 1) == 1);
  syscall(SYS_exit, 12);
}
static void strict_kill(void) {
  MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL));
  syscall(SYS_getpid);
}
static void strict_kill_asking(void) {
  MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
  prctl(PR_GET_SECCOMP);
}

static int ready[2], go[2];
static void* other_thread(void* unused) {
  char byte = 0;
  CHECK(write(ready[1], "r", 1) == 1);
  CHECK(read(go[0], &byte, 1) == 1);
  FAILS(syscall(SYS_getsid, 0), EXDEV);
  CHECK(prctl(PR_GET_SECCOMP) == 2);
  return unused;
}
static void synchronised(void) {
  char byte = 0;
  pthread_t thread;
  MUST(pipe(ready));
  MUST(pipe(go));
  MUST0(pthread_create(&thread, NULL, other_thread, NULL));
  CHECK(read(ready[0], &byte, 1) == 1);
  struct sock_filter filter[] = {LOAD(nr), IF(SYS_getsid, 0, 1), ANSWER(SECCOMP_RET_ERRNO | EXDEV), ANSWER(SECCOMP_RET_ALLOW)};
  CHECK(INSTALL(filter, SECCOMP_FILTER_FLAG_TSYNC) == 0);
  CHECK(write(go[1], "g", 1) == 1);
  MUST0(pthread_join(thread, NULL));
}

static void* own_filter(void* unused) {
  char byte = 0;
  answer_call(SYS_getpgid, SECCOMP_RET_ERRNO | EXDEV);
  const pid_t tid = (pid_t)syscall(SYS_gettid);
  CHECK(write(ready[1], &tid, sizeof tid) == sizeof tid);
  CHECK(read(go[0], &byte, 1) == 1);
  return unused;
}
static void not_synchronised(void) {
  pid_t tid = 0;
  pthread_t thread;
  MUST(pipe(ready));
  MUST(pipe(go));
  MUST0(pthread_create(&thread, NULL, own_filter, NULL));
  CHECK(read(ready[0], &tid, sizeof tid) == sizeof tid);
  struct sock_filter filter[] = {ANSWER(SECCOMP_RET_ALLOW)};
  CHECK(INSTALL(filter, SECCOMP_FILTER_FLAG_TSYNC) == tid);
  FAILS(INSTALL(filter, SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH), ESRCH);
  CHECK(prctl(PR_GET_SECCOMP) == 0);
  CHECK(write(go[1], "g", 1) == 1);
  MUST0(pthread_join(thread, NULL));
}

static void inherited(void) {
  answer_call(SYS_getsid, SECCOMP_RET_ERRNO | EXDEV);
  const pid_t child = MUST(fork());
  if (child == 0) {
    FAILS(syscall(SYS_getsid, 0), EXDEV);
    execl("/proc/self/exe", "seccomp_actions", "inherited", NULL);
  }
  wait_for_exit(child, 13);
}

static void asked(void) {
  struct sock_filter good[] = {ANSWER(SECCOMP_RET_ALLOW)};
  struct sock_filter no_end[] = {LOAD(nr)};
  struct sock_filter far_jump[] = {IF(0, 5, 0), ANSWER(SECCOMP_RET_ALLOW)};
  struct sock_filter unaligned[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2), ANSWER(SECCOMP_RET_ALLOW)};
  struct sock_filter unwritten[] = {BPF_STMT(BPF_LD | BPF_MEM, 2), ANSWER(SECCOMP_RET_ALLOW)};
  struct sock_filter by_zero[] = {BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 0), ANSWER(SECCOMP_RET_ALLOW)};
  struct sock_filter modulo[] = {BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, 3), ANSWER(SECCOMP_RET_ALLOW)};
  FAILS(INSTALL(no_end, 0), EINVAL);
  FAILS(INSTALL(far_jump, 0), EINVAL);
  FAILS(INSTALL(unaligned, 0), EINVAL);
  FAILS(INSTALL(unwritten, 0), EINVAL);
  FAILS(INSTALL(by_zero, 0), EINVAL);
  FAILS(INSTALL(modulo, 0), EINVAL);
  FAILS(install(good, 0, 0), EINVAL);
  FAILS(install(good, 5000, 0), EINVAL);
  FAILS(INSTALL(good, 1 << 20), EINVAL);
  FAILS(install(NULL, 1, 0), EINVAL);
  FAILS(install((void*)8, 1, 0), EFAULT);
  FAILS(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL), EFAULT);
  // Asks which flags are known, as libseccomp does.
  const unsigned flags[] = {SECCOMP_FILTER_FLAG_TSYNC, SECCOMP_FILTER_FLAG_LOG, SECCOMP_FILTER_FLAG_SPEC_ALLOW};
  for (int i = 0; i < 3; i++) FAILS(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags[i], NULL), EFAULT);
  CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, NULL) == -1);
  FAILS(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL), EINVAL);
  FAILS(syscall(SYS_seccomp, 99, 0, NULL), EINVAL);
  FAILS(prctl(PR_SET_SECCOMP, 3, NULL), EINVAL);
  uint32_t action = SECCOMP_RET_TRAP;
  MUST(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action));
  action = 0x12340000;
  FAILS(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action), EOPNOTSUPP);
  FAILS(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, NULL), EFAULT);
  CHECK(prctl(PR_GET_SECCOMP) == 0);
  struct sock_fprog program = {1, good};
  MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
  CHECK(prctl(PR_GET_SECCOMP) == 2);
  FAILS(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT), EINVAL);
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "inherited") == 0) {
    FAILS(syscall(SYS_getsid, 0), EXDEV);
    return 13;
  }
  MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
  FAILS(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), EINVAL);
  struct seccomp_notif_sizes sizes = {0};
  MUST(syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes));
  NOTE(sizes);
  in_child(asked, 0, 10);
  in_child(errors, 0, 11);
  in_child(by_arguments, 0, 1);
  in_child(by_place, 0, 1);
  in_child(traps, 0, 1);
  in_child(uncaught_trap, SIGSYS, 0);
  in_child(ignored_trap, SIGSYS, 0);
  in_child(blocked_trap, SIGSYS, 0);
  in_child(kill_process, SIGSYS, 0);
  in_child(kill_only_thread, SIGSYS, 0);
  in_child(unknown_action, SIGSYS, 0);
  in_child(kill_thread, 0, 1);
  in_child(strict_exit, 0, 12);
  in_child(strict_kill, SIGKILL, 0);
  in_child(strict_kill_asking, SIGKILL, 0);
  in_child(synchronised, 0, 1);
  in_child(not_synchronised, 0, 1);
  in_child(inherited, 0, 1);
  return ok("%llx", (unsigned long long)noted);
}
