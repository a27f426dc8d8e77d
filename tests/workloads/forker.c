// Starts N processes, one after the other, which say who they are and then fork on and on, until somebody kills them.
// usage: forker N
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void fork_on(void) {
  printf("%d\n", getpid());
  fflush(stdout);
  for (;;) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    if (child > 0) waitpid(child, NULL, 0);
  }
}

int main(int argc, char** argv) {
  const int times = argc > 1 ? atoi(argv[1]) : 1;
  for (int i = 0; i < times; i++) {
    const pid_t child = fork();
    if (child == 0) fork_on();
    int status = 0;
    waitpid(child, &status, 0);
  }
  printf("ok\n");
  return 0;
}
