// exec by a thread that is not the leader, while others work and block: the new program has the leader's number and a single thread.
#include "test.h"

#include <dirent.h>

static int never[2];
static void* block(void* unused) {
  (void)unused;
  char byte;
  (void)!read(never[0], &byte, 1);
  return NULL;
}
static void* work(void* unused) {
  (void)unused;
  for (;;) CHECK(getppid() >= 0);
}
static void* replace(void* text) {
  execl("/proc/self/exe", "exec_thread", (char*)text, (char*)NULL);
  CHECK(!"reached");
  return NULL;
}

static int threads(void) {
  DIR* tasks = opendir("/proc/self/task");
  CHECK(tasks);
  int count = 0;
  for (const struct dirent* entry; (entry = readdir(tasks));) count += entry->d_name[0] != '.';
  closedir(tasks);
  return count;
}

int main(int argc, char** argv) {
  if (argc > 1) {
    CHECK(getpid() == atoi(argv[1]) && gettid() == getpid() && threads() == 1);
    pass_checkpoints();
    return ok("replaced");
  }
  char text[16];
  snprintf(text, sizeof text, "%d", getpid());
  MUST(pipe(never));
  pthread_t id;
  MUST0(pthread_create(&id, NULL, block, NULL));
  MUST0(pthread_create(&id, NULL, work, NULL));
  MUST0(pthread_create(&id, NULL, replace, text));
  for (;;) pause();
}
