// images: 4
// Three threads that compute for about 0.2 s each and pass small messages in a circle through pipes and a mutex: checkpoints of several
// threads, some blocked, some running.
#include "test.h"

enum { kThreads = 3, kTurns = 90 };
static int pipes[kThreads][2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t log_of_turns[kThreads * kTurns];
static int turns;

static void* work(void* number) {
  const int self = (int)(uintptr_t)number;
  for (int i = 0; i < kTurns; i++) {
    uint64_t token;
    read_all(pipes[self][0], &token, sizeof token);
    (void)compute(token, 25);
    MUST0(pthread_mutex_lock(&mutex));
    log_of_turns[turns++] = token;
    MUST0(pthread_mutex_unlock(&mutex));
    token++;
    write_all(pipes[(self + 1) % kThreads][1], &token, sizeof token);
  }
  return NULL;
}

int main(void) {
  pthread_t ids[kThreads];
  uint64_t token = 0;
  for (int i = 0; i < kThreads; i++) MUST(pipe(pipes[i]));
  for (uintptr_t i = 0; i < kThreads; i++) MUST0(pthread_create(&ids[i], NULL, work, (void*)i));
  write_all(pipes[0][1], &token, sizeof token);
  for (int i = 0; i < kThreads; i++) MUST0(pthread_join(ids[i], NULL));
  read_all(pipes[0][0], &token, sizeof token);
  CHECK(token == kThreads * kTurns && turns == kThreads * kTurns);
  for (int i = 0; i < turns; i++) CHECK(log_of_turns[i] == (uint64_t)i);
  return ok("token %lu", token);
}
