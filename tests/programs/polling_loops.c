// Threads, and processes that share memory, wait for each other in loops without calls and without pause instructions,
// some of them through functions.
// period: 20ms
#include <stdatomic.h>
#include <sys/mman.h>

#include "test.h"

enum { kRounds = 40, kMost = 4 };

struct shared {
  atomic_int turn, arrived, generation;
  uint64_t order;
};

static struct shared* shared;
static int sharers;

static int is_turn_of(int number) { return atomic_load(&shared->turn) % sharers == number; }
static int is_past(int generation) { return atomic_load(&shared->generation) != generation; }

static void wait_until(int (*holds)(int), int argument) {
  while (!holds(argument)) continue;
}

static void meet(void) {
  const int generation = atomic_load(&shared->generation);
  if (atomic_fetch_add(&shared->arrived, 1) + 1 == sharers) {
    atomic_store(&shared->arrived, 0);
    atomic_fetch_add(&shared->generation, 1);
  } else {
    wait_until(is_past, generation);
  }
}

static void* take_turns(void* number) {
  const int me = (int)(intptr_t)number;
  for (int round = 0; round < kRounds; round++) {
    while (atomic_load(&shared->turn) % sharers != me) continue;
    shared->order = shared->order * 31 + (uint64_t)me;
    atomic_fetch_add(&shared->turn, 1);
    wait_until(is_turn_of, me);
    shared->order = shared->order * 37 + (uint64_t)me;
    atomic_fetch_add(&shared->turn, 1);
    meet();
  }
  return NULL;
}

static void check_order(void) {
  uint64_t expected = 0;
  for (int round = 0; round < kRounds; round++) {
    for (int i = 0; i < sharers; i++) expected = expected * 31 + (uint64_t)i;
    for (int i = 0; i < sharers; i++) expected = expected * 37 + (uint64_t)i;
  }
  CHECK(shared->order == expected);
  *shared = (struct shared){0};
}

int main(void) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  for (sharers = 2; sharers <= kMost; sharers++) {
    pthread_t thread[kMost];
    for (intptr_t i = 0; i < sharers; i++) MUST0(pthread_create(&thread[i], NULL, take_turns, (void*)i));
    for (int i = 0; i < sharers; i++) MUST0(pthread_join(thread[i], NULL));
    check_order();

    for (intptr_t i = 0; i < sharers; i++) {
      if (MUST(fork()) == 0) {
        take_turns((void*)i);
        _exit(0);
      }
    }
    for (int i = 0; i < sharers; i++) {
      int status;
      MUST(wait(&status));
      CHECK(status == 0);
    }
    check_order();
  }
  return ok("%d rounds, up to %d threads and processes", kRounds, kMost);
}
