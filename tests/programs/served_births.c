// Forks, vforks, threads and execs of a process whose calls have been made so often that a recorder may serve them without a stop, by the
// C library's functions and by syscall(2); children that are killed while they write.
#include "test.h"

#include <sched.h>
#include <spawn.h>

extern char** environ;

static void work(int calls) {
  struct timespec now;
  for (int i = 0; i < calls; i++) {
    CHECK(syscall(SYS_getppid) > 0);
    MUST(clock_gettime(CLOCK_MONOTONIC, &now));
  }
}

static void* thread(void* channel) {
  const int* const ends = channel;
  for (int i = 0; i < 200; i++) {
    work(2);
    MUST(write(ends[1], &i, sizeof i));
  }
  return NULL;
}

int main(int argc, char** argv) {
  if (argc > 1) {
    work(20);
    return 7;
  }
  work(50);
  int ends[2], value;
  MUST(pipe(ends));
  for (int i = 0; i < 10; i++) {
    const pid_t child = (pid_t)MUST(i % 2 ? (long)fork() : syscall(SYS_fork));
    if (child == 0) {
      work(30);
      MUST(write(ends[1], &i, sizeof i));
      syscall(SYS_exit_group, i);
    }
    CHECK(read(ends[0], &value, sizeof value) == sizeof value && value == i);
    work(10);
    wait_for_exit(child, i);
  }
  for (int i = 0; i < 3; i++) {
    pid_t child;
    MUST0(posix_spawn(&child, "/proc/self/exe", NULL, NULL, (char*[]){argv[0], "child", NULL}, environ));
    wait_for_exit(child, 7);
    const pid_t quick = vfork();
    if (quick == 0) {
      getppid();
      _exit(3);
    }
    wait_for_exit(quick, 3);
  }
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) MUST0(pthread_create(&threads[i], NULL, thread, ends));
  long sum = 0;
  for (int i = 0; i < 600; i++) {
    CHECK(read(ends[0], &value, sizeof value) == sizeof value);
    sum += value;
  }
  for (int i = 0; i < 3; i++) MUST0(pthread_join(threads[i], NULL));
  CHECK(sum == 3 * 199 * 200 / 2);
  // A child is killed during its writes: what it wrote last is received nevertheless.
  for (int i = 0; i < 3; i++) {
    int out[2];
    MUST(pipe(out));
    const pid_t child = MUST(fork());
    if (child == 0) {
      MUST(close(out[0]));
      for (uint32_t n = 0;; n++) MUST(write(out[1], &n, sizeof n));
    }
    MUST(close(out[1]));
    uint32_t expected = 0, found = 0;
    for (; expected < 3000; expected++) CHECK(read(out[0], &found, sizeof found) == sizeof found && found == expected);
    MUST(kill(child, SIGKILL));
    while (read(out[0], &found, sizeof found) == sizeof found) CHECK(found == expected++);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    MUST(close(out[0]));
  }
  pass_checkpoints();
  return ok("%ld", sum);
}
