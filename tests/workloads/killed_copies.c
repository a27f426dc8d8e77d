// Kills every child of its own that /proc shows: it has none but the copies of it that checkpoints need.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kMegabytes = 48 };

static void kill_children(const char* path) {
  char list[4096];
  const int file = open(path, O_RDONLY);
  const ssize_t size = read(file, list, sizeof list - 1);
  if (size < 0) exit(1);
  close(file);
  list[size] = 0;
  for (char* next = list; *next;) {
    const pid_t child = (pid_t)strtol(next, &next, 10);
    if (child > 0) kill(child, SIGKILL);
    while (*next == ' ') next++;
  }
}

int main(void) {
  static char memory[kMegabytes << 20];
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
  struct timespec used;
  int round = 0;
  do {
    round++;
    for (int i = 0; i < kMegabytes; i++) {
      memset(memory + ((size_t)i << 20), round, 1 << 20);
      kill_children(path);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  } while (used.tv_sec == 0 && used.tv_nsec < 600000000);
  for (size_t i = 0; i < sizeof memory; i += 4096) {
    if (memory[i] != (char)round) return 2;
  }
  puts("ok");
  return 0;
}
