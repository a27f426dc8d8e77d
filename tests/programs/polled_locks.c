// A thread takes a lock again and again, and makes its calls only while it holds it. Another one does not wait for the
// lock in the kernel, but looks again and again whether it is free.
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>

#include "test.h"

enum { kTurns = 2 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_spinlock_t spin;
static int null, stop;

static void write_byte(void) { CHECK(write(null, "x", 1) == 1); }
static void sleep_shortly(void) { usleep(50); }
static void ask_clock(void) {
  struct timespec now;
  MUST0(clock_gettime(CLOCK_MONOTONIC, &now));
}

static void lock_mutex(void) {
  while (pthread_mutex_trylock(&mutex)) usleep(100);
}
static void unlock_mutex(void) { pthread_mutex_unlock(&mutex); }
static void lock_spinning(void) { pthread_spin_lock(&spin); }
static void lock_yielding(void) {
  while (pthread_spin_trylock(&spin)) sched_yield();
}
static void unlock_spin(void) { pthread_spin_unlock(&spin); }

struct kind {
  void (*lock)(void), (*unlock)(void), (*call)(void);
};

static void* take_always(void* its_kind) {
  const struct kind* const kind = its_kind;
  for (int stopped = 0; !stopped;) {
    kind->lock();
    kind->call();
    stopped = stop;
    kind->unlock();
  }
  return NULL;
}

int main(void) {
  struct kind kinds[] = {
      {lock_mutex, unlock_mutex, write_byte},   {lock_mutex, unlock_mutex, ask_clock},
      {lock_spinning, unlock_spin, write_byte}, {lock_spinning, unlock_spin, sleep_shortly},
      {lock_yielding, unlock_spin, write_byte},
  };
  null = open("/dev/null", O_WRONLY);
  CHECK(null >= 0);
  MUST0(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    pthread_t other;
    stop = 0;
    MUST0(pthread_create(&other, NULL, take_always, &kinds[i]));
    for (int k = 1; k <= kTurns; k++) {
      kinds[i].lock();
      stop = k == kTurns;
      kinds[i].unlock();
      usleep(1000);
    }
    MUST0(pthread_join(other, NULL));
  }
  return ok("%d turns of each kind", kTurns);
}
