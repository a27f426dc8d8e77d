// pthread_cancel of threads that make calls over and over, so that a recorder that serves them without a stop is caught in the middle,
// and of threads that sleep in a call. No descriptor and no byte is lost: a thread has counted what it read or wrote before its end.
#include "test.h"

#include <fcntl.h>
#include <poll.h>
#include <time.h>

enum { kRounds = 4 };
static int zero, null, empty[2], listener;
static volatile int started, cleaned;

static void clean(void* unused) {
  (void)unused;
  CHECK(getppid() > 0);  // calls work in a handler of a cancelled thread
  cleaned++;
}

// Cancellation points, one after the other.
static void loop_calls(void) {
  char bytes[64];
  for (;;) {
    CHECK(read(zero, bytes, sizeof bytes) == sizeof bytes);
    CHECK(write(null, bytes, sizeof bytes) == sizeof bytes);
    struct pollfd readable = {.fd = zero, .events = POLLIN};
    CHECK(poll(&readable, 1, 0) == 1);
    started = 1;
  }
}

// None of them is a cancellation point; the thread can be cancelled at any instruction.
static void loop_asynchronously(void) {
  int old;
  MUST0(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old));
  for (;;) {
    CHECK(getppid() > 0 && lseek(zero, 0, SEEK_CUR) == 0);
    started = 1;
  }
}

// Only where the thread asks for it.
static void loop_tests(void) {
  int old;
  for (;;) {
    char bytes[64];
    MUST0(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old));
    CHECK(read(zero, bytes, sizeof bytes) == sizeof bytes);
    CHECK(write(null, bytes, sizeof bytes) == sizeof bytes);
    MUST0(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old));
    started = 1;
    pthread_testcancel();
  }
}

static void sleep_in_read(void) {
  char byte;
  started = 1;
  (void)!read(empty[0], &byte, 1);
}
static void sleep_in_poll(void) {
  struct pollfd nothing = {.fd = empty[0], .events = POLLIN};
  started = 1;
  (void)poll(&nothing, 1, -1);
}
static void sleep_in_accept(void) {
  started = 1;
  (void)accept(listener, NULL, NULL);
}
static void sleep_in_nanosleep(void) {
  started = 1;
  (void)nanosleep(&(struct timespec){1000, 0}, NULL);
}

static void* run(void* body) {
  pthread_cleanup_push(clean, NULL);
  ((void (*)(void))body)();
  pthread_cleanup_pop(0);
  return NULL;
}

int main(void) {
  void (*const bodies[])(void) = {loop_calls,    loop_asynchronously, loop_tests,        sleep_in_read,
                                  sleep_in_poll, sleep_in_accept,     sleep_in_nanosleep};
  struct sockaddr_storage address;
  zero = MUST(open("/dev/zero", O_RDONLY));
  null = MUST(open("/dev/null", O_WRONLY));
  MUST(pipe(empty));
  listener = bound_socket(AF_INET, SOCK_STREAM, &address);
  int cancelled = 0;
  for (int round = 0; round < kRounds; round++) {
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
      pthread_t id;
      void* result;
      started = 0;
      MUST0(pthread_create(&id, NULL, run, (void*)bodies[i]));
      while (!started) usleep(100);
      if (round % 3 == 0) usleep(500);  // so that a sleeper probably sleeps; correct in either case
      MUST0(pthread_cancel(id));
      MUST0(pthread_join(id, &result));
      cancelled++;
      CHECK(result == PTHREAD_CANCELED && cleaned == cancelled);
    }
  }
  const int connection = connected_to(&address),
            accepted = MUST(accept(listener, NULL, NULL));  // not lost to a thread that has ended
  write_all(connection, "x", 1);
  char byte;
  read_all(accepted, &byte, 1);
  write_all(empty[1], "y", 1);
  read_all(empty[0], &byte, 1);
  CHECK(byte == 'y');
  return ok("%d cancelled", cancelled);
}
