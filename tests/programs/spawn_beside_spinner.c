// images: 1
// A thread computes without any call until another one has spawned programs. The children, which run in the memory of both until they
// execute their programs, must get the baton.
#include "test.h"

#include <spawn.h>

extern char** environ;

static volatile int spawned;
static void* spin(void* unused) {
  while (!spawned) {
  }
  return unused;
}

int main(int count, char** words) {
  if (count > 1) return atoi(words[1]);
  pthread_t thread;
  MUST0(pthread_create(&thread, NULL, spin, NULL));
  for (int i = 0; i < 3; i++) {
    pid_t child;
    char status[] = {(char)('5' + i), 0};
    char* const arguments[] = {words[0], status, NULL};
    MUST0(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ));
    wait_for_exit(child, 5 + i);
  }
  spawned = 1;
  MUST0(pthread_join(thread, NULL));
  return ok("spawned");
}
