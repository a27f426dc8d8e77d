// A program that checks the limits that it was started with, and reaches them.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void* run(void* unused) { return unused; }

static void show_limits(void) {
  for (int i = 0; i < RLIM_NLIMITS; i++) {
    struct rlimit limit;
    if (getrlimit(i, &limit) == 0) printf("limit %d: %ld %ld\n", i, (long)limit.rlim_cur, (long)limit.rlim_max);
  }
}

static void open_many(void) {
  int opened = 0, fd, last = 2;
  while (opened < 3000 && (fd = open("/dev/null", O_RDONLY)) >= 0) opened++, last = fd;
  printf("%d descriptors, %s\n", opened, opened < 3000 ? strerror(errno) : "enough");
  while (opened-- > 0) close(last--);
}

static void write_much(void) {
  signal(SIGXFSZ, SIG_IGN);
  const int file = open("large", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  static char block[100000];
  const ssize_t written = write(file, block, sizeof block);
  printf("%zd bytes of a file, %s\n", written, written < 0 ? strerror(errno) : "written");
  close(file);
  unlink("large");
}

int main(void) {
  show_limits();
  open_many();
  write_much();
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, NULL) == 0) pthread_join(thread, NULL);
  fflush(stdout);
  for (int i = 0; i < 10; i++) {
    const pid_t child = fork();
    if (child == 0) {
      open_many();
      fflush(stdout);
      _exit(i);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != i) return 1;
  }
  return puts("ok") < 0;
}
