// clone3(2): processes and threads with everything that can be asked for, and what is returned through memory.
#include "test.h"

#include "clone3.h"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>

static long clone3(struct clone_args* arguments) { return syscall(SYS_clone3, arguments, sizeof *arguments); }

static volatile int ran;
static void run(void) { ran++; }

static void of_threads(void) {
  enum { kStack = 65536 };
  char* const stack = MUST(mmap(NULL, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  for (int i = 0; i < 3; i++) {
    volatile uint32_t parent_tid = 0;
    static volatile uint32_t child_tid;
    child_tid = 1;
    struct clone_args arguments = {
        .flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_PARENT_SETTID |
                 CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID,
        .parent_tid = (uintptr_t)&parent_tid,
        .child_tid = (uintptr_t)&child_tid,
        .stack = (uintptr_t)stack,
        .stack_size = kStack,
    };
    const long tid = clone3_and_run(&arguments, run);
    CHECK(tid > 0 && parent_tid == (uint32_t)tid);
    for (uint32_t word; (word = child_tid) != 0;) syscall(SYS_futex, &child_tid, FUTEX_WAIT, word, NULL, NULL, 0);
    CHECK(ran == i + 1);
  }
  MUST(munmap(stack, kStack));
}

static void of_processes(void) {
  int pidfd = -1;
  pid_t parent_tid = 0, child_tid = 0;
  struct clone_args arguments = {
      .flags = CLONE_PIDFD | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CLEAR_SIGHAND,
      .pidfd = (uintptr_t)&pidfd,
      .parent_tid = (uintptr_t)&parent_tid,
      .child_tid = (uintptr_t)&child_tid,
      .exit_signal = SIGCHLD,
  };
  signal(SIGUSR1, SIG_IGN);
  signal(SIGUSR2, (void (*)(int))run);
  const long child = MUST(clone3(&arguments));
  if (child == 0) {
    struct sigaction action;
    MUST(sigaction(SIGUSR2, NULL, &action));
    CHECK(action.sa_handler == SIG_DFL && child_tid == getpid());
    MUST(sigaction(SIGUSR1, NULL, &action));
    CHECK(action.sa_handler == SIG_IGN);
    _exit(7);
  }
  CHECK(parent_tid == child && child_tid == 0 && pidfd >= 0);
  struct pollfd ends = {.fd = pidfd, .events = POLLIN};
  CHECK(poll(&ends, 1, -1) == 1);
  MUST(close(pidfd));
  wait_for_exit((pid_t)child, 7);
}

static void of_sharers(void) {
  enum { kStack = 65536 };
  char* const stack = MUST(mmap(NULL, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  struct clone_args arguments = {
      .flags = CLONE_VM | CLONE_VFORK, .exit_signal = SIGCHLD, .stack = (uintptr_t)stack, .stack_size = kStack};
  const int before = ran;
  const long child = clone3_and_run(&arguments, run);
  CHECK(child > 0 && ran == before + 1);
  wait_for_exit((pid_t)child, 0);
  MUST(munmap(stack, kStack));
}

// What the program passed is there in both.
static void of_untraced(void) {
  struct clone_args arguments = {.flags = CLONE_UNTRACED, .exit_signal = SIGCHLD};
  long child = MUST(clone3(&arguments));
  CHECK(arguments.flags == CLONE_UNTRACED);
  if (child == 0) _exit(getppid() > 0 ? 5 : 6);
  wait_for_exit((pid_t)child, 5);
  arguments.flags |= CLONE_THREAD;
  FAILS(clone3(&arguments), EINVAL);
  CHECK(arguments.flags == (CLONE_UNTRACED | CLONE_THREAD));
  const unsigned long asked = CLONE_UNTRACED | SIGCHLD;
  unsigned long flags = asked;
  register long tls __asm__("r8") = 0;
  register long child_tid __asm__("r10") = 0;
  child = SYS_clone;
  __asm__ volatile("syscall" : "+a"(child), "+D"(flags) : "S"(0), "d"(0), "r"(child_tid), "r"(tls) : "rcx", "r11", "memory");
  CHECK(child >= 0 && flags == asked);
  if (child == 0) _exit(getppid() > 0 ? 7 : 8);
  wait_for_exit((pid_t)child, 7);
}

int main(void) {
  struct clone_args arguments = {.exit_signal = SIGCHLD};
  FAILS(syscall(SYS_clone3, &arguments, 8), EINVAL);
  FAILS(syscall(SYS_clone3, NULL, sizeof arguments), EFAULT);
  arguments.flags = CLONE_THREAD;
  FAILS(clone3(&arguments), EINVAL);
  arguments = (struct clone_args){.exit_signal = 0};
  const long quiet = MUST(clone3(&arguments));
  if (quiet == 0) _exit(0);
  int status = -1;
  CHECK(waitpid((pid_t)quiet, &status, __WALL) == quiet && WIFEXITED(status));
  const pid_t wanted = 300000;
  arguments = (struct clone_args){.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&wanted, .set_tid_size = 1};
  const long named = clone3(&arguments);
  if (named == 0) _exit(getpid() == wanted ? 3 : 4);
  CHECK(named == wanted || (named == -1 && (errno == EPERM || errno == EEXIST || errno == EINVAL)));
  if (named > 0) wait_for_exit((pid_t)named, 3);
  of_threads();
  of_processes();
  of_sharers();
  of_untraced();
  return ok("%d", ran);
}
