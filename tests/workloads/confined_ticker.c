// A process that would be killed for calls that it does not make itself, and says "tick" every 20 ms. With an argument it
// confines itself only when the file `confine` exists.
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int confine(void) {
#define KILLED_FOR(number) \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      KILLED_FOR(SYS_prctl),
      KILLED_FOR(SYS_rseq),
      KILLED_FOR(SYS_clone),
      KILLED_FOR(SYS_wait4),
      KILLED_FOR(SYS_modify_ldt),
      KILLED_FOR(SYS_rt_sigaction),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0;
}

int main(int count, char** arguments) {
  (void)arguments;
  int confined = count < 2;
  if (confined && confine()) return perror("seccomp"), 2;
  while (access("end", F_OK) != 0) {
    if (!confined && access("confine", F_OK) == 0) {
      if (confine()) return perror("seccomp"), 2;
      confined = 1;
    }
    const struct timespec some = {0, 20000000};
    if (nanosleep(&some, NULL) != 0) return perror("nanosleep"), 3;
    const int refused = syscall(SYS_getppid) == -1 && errno == EPERM;
    if (refused != confined) return puts("the filter is not applied"), 4;
    puts(confined ? "confined tick" : "tick");
    fflush(stdout);
  }
  puts("ok");
  return 0;
}
