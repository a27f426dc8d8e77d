// SysV objects of several IPC namespaces, which number them in the same way: shared memory that is not shared, and semaphores.
#include "test.h"

#include <sched.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/shm.h>

enum { kSemaphores = 300 };

static char* new_memory(void) {
  char* const memory = shmat(MUST(shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600)), NULL, 0);
  CHECK(memory != (void*)-1 && *memory == 0);
  return memory;
}

static void semaphores(void) {
  const int id = MUST(semget(IPC_PRIVATE, kSemaphores, IPC_CREAT | 0600));
  unsigned short values[kSemaphores];
  for (int i = 0; i < kSemaphores; i++) values[i] = (unsigned short)i;
  MUST(semctl(id, 0, SETALL, values));
  memset(values, 0x77, sizeof values);
  MUST(semctl(id, 0, GETALL, values));
  for (int i = 0; i < kSemaphores; i++) CHECK(values[i] == i);
}

// Both namespaces are new, so that the first segment of each has the same number.
int main(void) {
  int there[2], back[2];
  char byte;
  MUST(pipe(there)), MUST(pipe(back));
  if (!MAY(unshare(CLONE_NEWIPC))) return skipped("may not make IPC namespaces");
  const pid_t child = MUST(fork());
  MUST(child ? 0 : unshare(CLONE_NEWIPC));
  char* const memory = new_memory();
  semaphores();
  if (child == 0) {
    strcpy(memory, "the child's");
    CHECK(write(there[1], "x", 1) == 1 && read(back[0], &byte, 1) == 1);
    CHECK(strcmp(memory, "the child's") == 0);
    _exit(0);
  }
  CHECK(read(there[0], &byte, 1) == 1);
  CHECK(*memory == 0);
  strcpy(memory, "the parent's");
  pass_checkpoints();
  CHECK(write(back[1], "x", 1) == 1);
  wait_for_exit(child, 0);
  CHECK(strcmp(memory, "the parent's") == 0);
  return ok("%s", memory);
}
