// Unnamed semaphores between threads: two take turns, three share two places.
#include "test.h"

#include <semaphore.h>

static sem_t ping, pong, places;
static int turns, inside, most;

static void* answer(void* unused) {
  (void)unused;
  for (int i = 0; i < 300; i++) {
    MUST(sem_wait(&ping));
    CHECK(turns == 2 * i + 1);
    turns++;
    MUST(sem_post(&pong));
  }
  return NULL;
}
static void* enter(void* unused) {
  (void)unused;
  for (int i = 0; i < 100; i++) {
    MUST(sem_wait(&places));
    const int now = __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
    CHECK(now >= 1 && now <= 2);
    if (now == 2) most = 2;
    sched_yield();
    __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
    MUST(sem_post(&places));
  }
  return NULL;
}

int main(void) {
  pthread_t ids[3];
  MUST(sem_init(&ping, 0, 0));
  MUST(sem_init(&pong, 0, 0));
  MUST(sem_init(&places, 0, 2));
  MUST0(pthread_create(&ids[0], NULL, answer, NULL));
  for (int i = 0; i < 300; i++) {
    turns++;
    MUST(sem_post(&ping));
    MUST(sem_wait(&pong));
    CHECK(turns == 2 * i + 2);
  }
  MUST0(pthread_join(ids[0], NULL));
  CHECK(sem_trywait(&pong) == -1 && errno == EAGAIN);
  for (int i = 0; i < 3; i++) MUST0(pthread_create(&ids[i], NULL, enter, NULL));
  for (int i = 0; i < 3; i++) MUST0(pthread_join(ids[i], NULL));
  CHECK(inside == 0);
  return ok("most %d", most);
}
