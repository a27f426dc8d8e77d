// main ends by pthread_exit; the process continues, and ends with its last thread.
#include "test.h"

static pthread_t main_thread;

static void* last(void* unused) {
  (void)unused;
  MUST0(pthread_join(main_thread, NULL));
  pass_checkpoints();
  CHECK(gettid() != getpid());
  exit(ok("outlived main"));
}

int main(void) {
  main_thread = pthread_self();
  pthread_t id;
  MUST0(pthread_create(&id, NULL, last, NULL));
  pthread_exit(NULL);
}
