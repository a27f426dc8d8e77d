// posix_spawn with file actions and attributes, system() and popen().
#include "test.h"

#include <fcntl.h>
#include <spawn.h>

extern char** environ;

int main(void) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  int ends[2];
  MUST(pipe2(ends, O_CLOEXEC));
  MUST0(posix_spawn_file_actions_init(&actions));
  MUST0(posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO));
  MUST0(posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0));
  MUST0(posix_spawnattr_init(&attributes));
  MUST0(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP));
  char* words[] = {"sh", "-c", "cat; echo spawned; exit 4", NULL};
  pid_t child;
  MUST0(posix_spawnp(&child, "sh", &actions, &attributes, words, environ));
  MUST(close(ends[1]));
  char text[16] = {0};
  read_all(ends[0], text, 8);
  CHECK(strcmp(text, "spawned\n") == 0 && read(ends[0], text, 1) == 0);
  wait_for_exit(child, 4);
  CHECK(posix_spawn(&child, "/nonexistent/program", NULL, NULL, words, environ) == ENOENT);

  const int status = system("exit 6");
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 6);
  FILE* stream = popen("echo one two | tr a-z A-Z", "r");
  char a[8], b[8];
  CHECK(stream && fscanf(stream, "%7s %7s", a, b) == 2 && strcmp(a, "ONE") == 0 && strcmp(b, "TWO") == 0);
  CHECK(pclose(stream) == 0);
  return ok("spawned");
}
