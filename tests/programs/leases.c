// A call that breaks a lease waits until its holder, another thread of the process, gives it back. The kernel takes it away after 45 s.
#include "test.h"

#include <fcntl.h>
#include <time.h>

static int file, told[2];

static void on_break(int signal) {
  (void)signal;
  CHECK(write(told[1], "x", 1) == 1);
}

static void* truncate_it(void* unused) {
  (void)unused;
  MUST(truncate("leased", 10));
  return NULL;
}
static void* create_it(void* unused) {
  (void)unused;
  MUST(close(MUST(creat("leased", 0600))));
  return NULL;
}

int main(void) {
  MUST(pipe(told));
  signal(SIGIO, on_break);
  void* (*const breaks[])(void*) = {truncate_it, create_it};
  const time_t start = time(NULL);
  for (int i = 0; i < 2; i++) {
    file = MUST(open("leased", O_RDWR | O_CREAT, 0600));
    if (fcntl(file, F_SETLEASE, F_WRLCK) != 0) return skipped("this file system has no leases");
    pthread_t thread;
    char byte;
    MUST0(pthread_create(&thread, NULL, breaks[i], NULL));
    read_all(told[0], &byte, 1);
    MUST(fcntl(file, F_SETLEASE, F_UNLCK));
    MUST0(pthread_join(thread, NULL));
    MUST(close(file));
  }
  CHECK(time(NULL) - start < 30);
  MUST(unlink("leased"));
  return ok("leases");
}
