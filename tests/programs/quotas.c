// quotactl(2): few file systems have quotas, but each command has an answer.
#include "test.h"

#include <fcntl.h>
#include <linux/dqblk_xfs.h>
#include <sys/quota.h>

int main(void) {
  const int here = MUST(open(".", O_RDONLY | O_DIRECTORY));
  union {
    struct dqblk block;
    char all[256];
  } answer;
  const int commands[] = {Q_SYNC,     Q_QUOTAON,  Q_QUOTAOFF, Q_GETFMT,    Q_GETINFO,  Q_SETINFO,    Q_GETQUOTA,  Q_SETQUOTA,    0x800009,
                          Q_XQUOTAON, Q_XQUOTAOFF, Q_XGETQUOTA, Q_XSETQLIM, Q_XGETQSTAT, Q_XQUOTARM, Q_XQUOTASYNC, Q_XGETQSTATV, XQM_CMD(9)};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    const int command = QCMD(commands[i], USRQUOTA);
    memset(&answer, 0, sizeof answer);
    long result = syscall(SYS_quotactl, command, "/dev/null", 0, &answer);
    int error = result < 0 ? errno : 0;
    NOTE(result);
    NOTE(error);
    result = syscall(SYS_quotactl_fd, here, command, 0, &answer);
    error = result < 0 ? errno : 0;
    NOTE(result);
    NOTE(error);
    NOTE(answer);
  }
  CHECK(syscall(SYS_quotactl, QCMD(0x7fff, 0), "/dev/null", 0, &answer) == -1);
  return ok("%llx", (unsigned long long)noted);
}
