// Threads that take a lock again and again, and make their calls only while they hold it: those who wait for it must
// have their turn.
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>

#include "test.h"

enum { kTurns = 5 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static FILE* file;
static int null, stop, busy;

static void by_mutex(int* looks, int set) {
  pthread_mutex_lock(&mutex);
  CHECK(write(null, "x", 1) == 1);
  *looks = stop;
  if (set) stop = 1;
  pthread_mutex_unlock(&mutex);
}
static void by_clock(int* looks, int set) {
  struct timespec now;
  pthread_mutex_lock(&mutex);
  MUST0(clock_gettime(CLOCK_MONOTONIC, &now));
  *looks = stop;
  if (set) stop = 1;
  pthread_mutex_unlock(&mutex);
}
static void by_semaphore(int* looks, int set) {
  MUST0(sem_wait(&semaphore));
  CHECK(write(null, "x", 1) == 1);
  *looks = stop;
  if (set) stop = 1;
  MUST0(sem_post(&semaphore));
}
static void by_file(int* looks, int set) {
  flockfile(file);
  CHECK(fputs("x\n", file) >= 0);
  *looks = stop;
  if (set) stop = 1;
  funlockfile(file);
}
// A lock that is made of a condition, as in many language runtimes.
static void by_condition(int* looks, int set) {
  pthread_mutex_lock(&mutex);
  while (busy) pthread_cond_wait(&condition, &mutex);
  busy = 1;
  pthread_mutex_unlock(&mutex);
  CHECK(write(null, "x", 1) == 1);
  *looks = stop;
  if (set) stop = 1;
  pthread_mutex_lock(&mutex);
  busy = 0;
  pthread_mutex_unlock(&mutex);
  pthread_cond_signal(&condition);
}

typedef void (*Turn)(int*, int);

static void* take_always(void* turn) {
  int stopped = 0;
  while (!stopped) (*(Turn*)turn)(&stopped, 0);
  return NULL;
}

int main(void) {
  Turn turns[] = {by_mutex, by_clock, by_semaphore, by_file, by_condition};
  null = open("/dev/null", O_WRONLY);
  file = fdopen(dup(null), "w");
  CHECK(null >= 0 && file);
  setvbuf(file, NULL, _IOLBF, 0);
  MUST0(sem_init(&semaphore, 0, 1));
  for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
    pthread_t others[2];
    int stopped = 0;
    stop = 0;
    for (int k = 0; k < 2; k++) MUST0(pthread_create(&others[k], NULL, take_always, &turns[i]));
    for (int k = 1; k <= kTurns; k++) {
      turns[i](&stopped, k == kTurns);
      usleep(1000);
    }
    for (int k = 0; k < 2; k++) MUST0(pthread_join(others[k], NULL));
  }
  return ok("%d turns of each kind", kTurns);
}
