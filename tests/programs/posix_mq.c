// POSIX message queues: priorities, bounds, timeouts, between two processes.
#include "test.h"

#include <fcntl.h>
#include <mqueue.h>
#include <time.h>

int main(void) {
  char name[64], back_name[64], buffer[128];
  unsigned priority;
  struct mq_attr attributes = {.mq_maxmsg = 5, .mq_msgsize = 128}, found;
  snprintf(name, sizeof name, "/redrive-mq-%d", getpid());
  snprintf(back_name, sizeof back_name, "/redrive-mq-back-%d", getpid());
  const mqd_t there = MUST(mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes));
  const mqd_t back = MUST(mq_open(back_name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes));
  MUST(mq_unlink(name));
  MUST(mq_unlink(back_name));
  const pid_t child = MUST(fork());
  if (child == 0) {
    for (unsigned i = 0; i < 60; i++) {
      const ssize_t n = MUST(mq_receive(there, buffer, sizeof buffer, &priority));
      CHECK(is_filled(buffer, (size_t)n, i));
      buffer[0] ^= 1;
      MUST(mq_send(back, buffer, (size_t)n, priority + 1));
    }
    _exit(0);
  }
  for (unsigned i = 0; i < 60; i++) {
    fill(buffer, 1 + i, i);
    MUST(mq_send(there, buffer, 1 + i, i % 4));
    CHECK(mq_receive(back, buffer, sizeof buffer, &priority) == 1 + (ssize_t)i && priority == i % 4 + 1);
    buffer[0] ^= 1;
    CHECK(is_filled(buffer, 1 + i, i));
  }
  wait_for_exit(child, 0);
  for (unsigned i = 0; i < 5; i++) MUST(mq_send(there, (char[]){(char)('a' + i)}, 1, i));
  struct timespec past = {1, 0};
  CHECK(mq_timedsend(there, "x", 1, 0, &past) == -1 && errno == ETIMEDOUT);
  MUST(mq_getattr(there, &found));
  CHECK(found.mq_curmsgs == 5);
  for (int i = 4; i >= 0; i--) CHECK(mq_receive(there, buffer, sizeof buffer, NULL) == 1 && buffer[0] == 'a' + i);

  sigset_t told;
  siginfo_t info;
  sigemptyset(&told);
  sigaddset(&told, SIGUSR1);
  MUST0(pthread_sigmask(SIG_BLOCK, &told, NULL));
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 4711};
  MUST(mq_notify(there, &event));
  MUST(mq_send(there, "x", 1, 0));
  CHECK(sigwaitinfo(&told, &info) == SIGUSR1 && info.si_code == SI_MESGQ && info.si_value.sival_int == 4711);
  return ok("66 messages");
}
