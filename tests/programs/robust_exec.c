// What the kernel writes for others when a program is executed: a robust mutex that the process had locked says that its owner has died;
// also if another one of its threads had locked it; and the word of a child that shares its parent's memory is cleared.
#include "test.h"

#include <sched.h>
#include <sys/mman.h>

static pthread_mutex_t* mutexes;
static int ends[2];

static void* lock_second(void* unused) {
  (void)unused;
  MUST0(pthread_mutex_lock(&mutexes[1]));
  CHECK(write(ends[1], "", 1) == 1);
  pause();
  return NULL;
}

static int child_word = 1;
static int execute(void* unused) {
  (void)unused;
  execl("/bin/true", "true", (char*)NULL);
  return 97;
}

static void clear_word(void) {
  static char stack[64 << 10];
  const int flags = CLONE_VM | CLONE_VFORK | CLONE_CHILD_CLEARTID | SIGCHLD;
  const pid_t child = MUST(clone(execute, stack + sizeof stack, flags, NULL, NULL, NULL, &child_word));
  CHECK(child_word == 0);
  wait_for_exit(child, 0);
}

int main(void) {
  mutexes = MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  pthread_mutexattr_t robust;
  MUST0(pthread_mutexattr_init(&robust));
  MUST0(pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST));
  MUST0(pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED));
  for (int i = 0; i < 2; i++) MUST0(pthread_mutex_init(&mutexes[i], &robust));
  MUST(pipe(ends));
  const pid_t child = MUST(fork());
  if (child == 0) {
    pthread_t id;
    MUST0(pthread_mutex_lock(&mutexes[0]));
    MUST0(pthread_create(&id, NULL, lock_second, NULL));
    char byte;
    CHECK(read(ends[0], &byte, 1) == 1);
    execute(NULL);
    _exit(97);
  }
  wait_for_exit(child, 0);
  for (int i = 0; i < 2; i++) {
    CHECK(pthread_mutex_trylock(&mutexes[i]) == EOWNERDEAD);
    MUST0(pthread_mutex_consistent(&mutexes[i]));
    MUST0(pthread_mutex_unlock(&mutexes[i]));
  }
  NOTE(mutexes[0].__data.__lock), NOTE(mutexes[1].__data.__lock);
  clear_word();
  pass_checkpoints();
  return ok("%016llx", (unsigned long long)noted);
}
