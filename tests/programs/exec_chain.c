// A program that replaces itself twenty times. Process number, descriptors, ignored signals and mask are kept; handlers and CLOEXEC
// descriptors are not.
#include "test.h"

#include <fcntl.h>

static void handler(int signal) { (void)signal; }

int main(int argc, char** argv) {
  const int step = argc > 1 ? atoi(argv[1]) : 0;
  const int fd = argc > 2 ? atoi(argv[2]) : -1;
  if (step == 0) {
    int ends[2];
    MUST(pipe(ends));
    write_all(ends[1], "kept", 4);
    char number[16];
    snprintf(number, sizeof number, "%d", ends[0]);
    signal(SIGUSR1, SIG_IGN);
    signal(SIGUSR2, handler);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGHUP);
    MUST(sigprocmask(SIG_BLOCK, &mask, NULL));
    MUST(fcntl(ends[1], F_SETFD, FD_CLOEXEC));
    char pid[16];
    snprintf(pid, sizeof pid, "%d", getpid());
    setenv("CHAIN", "x", 1);
    execl("/proc/self/exe", "exec_chain", "1", number, pid, (char*)NULL);
  }
  CHECK(getpid() == atoi(argv[3]) && (int)strlen(getenv("CHAIN")) == step);
  if (step < 20) {
    char next[16], grown[64];
    snprintf(next, sizeof next, "%d", step + 1);
    snprintf(grown, sizeof grown, "%sx", getenv("CHAIN"));
    setenv("CHAIN", grown, 1);
    execl("/proc/self/exe", "exec_chain", next, argv[2], argv[3], (char*)NULL);
    CHECK(!"reached");
  }
  struct sigaction usr1, usr2;
  sigset_t mask;
  MUST(sigaction(SIGUSR1, NULL, &usr1));
  MUST(sigaction(SIGUSR2, NULL, &usr2));
  MUST(sigprocmask(SIG_BLOCK, NULL, &mask));
  CHECK(usr1.sa_handler == SIG_IGN && usr2.sa_handler == SIG_DFL && sigismember(&mask, SIGHUP));
  char text[8] = {0};
  read_all(fd, text, 4);
  CHECK(strcmp(text, "kept") == 0 && read(fd, text, 1) == 0);
  return ok("%d steps", step);
}
