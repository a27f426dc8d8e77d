// Memory shared by a parent and its children, with a process-shared mutex and condition variable; and System V shared memory.
#include "test.h"

#include <sys/mman.h>
#include <sys/shm.h>

enum { kChildren = 3, kRounds = 200 };
struct Shared {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  uint64_t counter, digest;
  int turn;
};

static void work(struct Shared* shared, uint64_t* plain, int self) {
  for (int i = 0; i < kRounds; i++) {
    MUST0(pthread_mutex_lock(&shared->mutex));
    shared->counter++;
    shared->digest = shared->digest * 1000003 + (uint64_t)self;
    *plain += (uint64_t)self;
    MUST0(pthread_mutex_unlock(&shared->mutex));
    if (i % 20 == 0) (void)compute(1, 5);
  }
  MUST0(pthread_mutex_lock(&shared->mutex));
  while (shared->turn != self) MUST0(pthread_cond_wait(&shared->changed, &shared->mutex));
  shared->turn++;
  MUST0(pthread_cond_broadcast(&shared->changed));
  MUST0(pthread_mutex_unlock(&shared->mutex));
}

int main(void) {
  struct Shared* shared =
      (struct Shared*)MUST(mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const int segment = MUST(shmget(IPC_PRIVATE, 4096, 0600));
  uint64_t* plain = (uint64_t*)MUST(shmat(segment, NULL, 0));
  MUST(shmctl(segment, IPC_RMID, NULL));
  pthread_mutexattr_t mutex;
  pthread_condattr_t condition;
  MUST0(pthread_mutexattr_init(&mutex));
  MUST0(pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED));
  MUST0(pthread_mutex_init(&shared->mutex, &mutex));
  MUST0(pthread_condattr_init(&condition));
  MUST0(pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED));
  MUST0(pthread_cond_init(&shared->changed, &condition));
  pid_t children[kChildren];
  for (int i = 0; i < kChildren; i++) {
    if ((children[i] = MUST(fork())) == 0) {
      work(shared, plain, i);
      _exit(i);
    }
  }
  work(shared, plain, kChildren);
  for (int i = 0; i < kChildren; i++) wait_for_exit(children[i], i);
  pass_checkpoints();
  CHECK(shared->counter == (kChildren + 1) * kRounds && shared->turn == kChildren + 1);
  CHECK(*plain == kRounds * (0 + 1 + 2 + 3));
  MUST(shmdt(plain));
  return ok("digest %016lx", shared->digest);
}
