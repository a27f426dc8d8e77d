// A thread is blocked in read while others compute and communicate: its bytes become visible only at its exit.
#include "test.h"

static int late[2], chat[2];
static char buffer[64];

static void* reader(void* unused) {
  (void)unused;
  CHECK(read(late[0], buffer, sizeof buffer) == 5 && memcmp(buffer, "late", 5) == 0);
  return NULL;
}
static void* worker(void* unused) {
  (void)unused;
  char byte;
  for (int i = 0; i < 300; i++) {
    write_all(chat[1], "c", 1);
    read_all(chat[0], &byte, 1);
    CHECK(buffer[0] == 0);
    (void)compute(1, 5);
  }
  return NULL;
}

int main(void) {
  pthread_t r, w;
  MUST(pipe(late));
  MUST(pipe(chat));
  MUST0(pthread_create(&r, NULL, reader, NULL));
  MUST0(pthread_create(&w, NULL, worker, NULL));
  MUST0(pthread_join(w, NULL));
  write_all(late[1], "late", 5);
  MUST0(pthread_join(r, NULL));
  CHECK(strcmp(buffer, "late") == 0);
  return ok("late");
}
