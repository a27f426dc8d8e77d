// What the programs of this directory share. Each is about one topic and checks itself: exit status 0 and a last line that begins
// with "ok" if all was right, else a line that names the failed check. Values may differ from run to run, the checks may not.
//
// Hints for the runner (tests/system/programs.py), in the comments at the top of a program:
//   // build: FLAGS     more compiler flags        // args: WORDS    its arguments
//   // exit: N          its exit status, if not 0  // images: N      image checkpoints that a recording must hold at least
//   // period: TIME     the recording's checkpoint period, if not 100ms
//   // needs: NAME      a line of `redrive check --host` that must say that this machine has it; else the test is skipped
//
// A program that finds that its machine lacks what it is about returns skipped(WHY).
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition))

__attribute__((noreturn, unused)) static void check_failed(const char* file, int line, const char* what) {
  fprintf(stderr, "%s:%d: failed: %s (errno %d: %s)\n", file, line, what, errno, strerror(errno));
  _exit(99);
}

// The result of a call that must not fail.
#define MUST(call)                      \
  ({                                    \
    __typeof__(call) must_ = (call);    \
    if (must_ == (__typeof__(must_))-1) \
      CHECK(!"must not fail: " #call);  \
    must_;                              \
  })

// For pthread functions, which return an error number.
#define MUST0(call) CHECK((errno = (call)) == 0)

// The call fails with that error.
#define FAILS(call, error) CHECK((call) == -1 && errno == (error))

// Whether the call worked. It may fail because this kernel does not have it or this user may not make it, or with one of the given
// errors.
#define MAY(call, ...)                                                                             \
  ({                                                                                               \
    const int works_ = (call) != -1;                                                               \
    CHECK(works_ || is_one_of(errno, (const int[]){ENOSYS, EPERM, EACCES, ##__VA_ARGS__, 0}));     \
    works_;                                                                                        \
  })
__attribute__((unused)) static int is_one_of(int error, const int* errors) {
  while (*errors && *errors != error) errors++;
  return *errors != 0;
}

// What calls have written, combined into one number. If a program prints it at its end, a replay compares all of it.
__attribute__((unused)) static uint64_t noted = 14695981039346656037ull;
__attribute__((unused)) static void note_bytes(const void* from, size_t size) {
  for (size_t i = 0; i < size; i++) noted = (noted ^ ((const unsigned char*)from)[i]) * 1099511628211ull;
}
#define NOTE(object) note_bytes(&(object), sizeof(object))

// Prints the result line; `return ok(...)` ends main.
__attribute__((format(printf, 1, 2), unused)) static int ok(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  printf("ok ");
  vprintf(format, arguments);
  printf("\n");
  va_end(arguments);
  return fflush(stdout) == 0 ? 0 : 98;
}

// What the program is about cannot be had on this machine: the test is skipped. `return skipped(WHY)` ends main.
__attribute__((unused)) static int skipped(const char* why) {
  printf("skip: %s\n", why);
  return fflush(stdout) == 0 ? 77 : 98;
}

// Numbers below `below`, drawn from the seed in the first argument, if there is one.
__attribute__((unused)) static uint64_t random_state = 88172645463325252u;
__attribute__((unused)) static void seed_random(int count, char** arguments) {
  if (count > 1) random_state += strtoull(arguments[1], NULL, 10) * 2654435761u;
}
__attribute__((unused)) static unsigned draw(unsigned below) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (unsigned)((random_state >> 11) % below);
}

// Some CPU time without any event: about 0.1 ms per round.
__attribute__((unused)) static uint64_t compute(uint64_t seed, int rounds) {
  uint64_t x = seed | 1;
  for (int i = 0; i < rounds * 50000; i++) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
  }
  __asm__ volatile("" ::"r"(x));  // must not be optimized away if nobody uses it
  return x;
}

// About 250 ms of CPU time with an event every half millisecond, so that checkpoints of a 100 ms period fall between what a program
// set up and what it checks.
__attribute__((unused)) static void pass_checkpoints(void) {
  static volatile uint64_t sink;
  for (int i = 0; i < 500; i++) {
    sink = compute(sink + (uint64_t)i, 5);
    CHECK(syscall(SYS_getppid) >= 0);
  }
}

// Reads or writes all of it on a blocking descriptor.
__attribute__((unused)) static void read_all(int fd, void* to, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = read(fd, (char*)to + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    CHECK(n > 0);
    done += (size_t)n;
  }
}
__attribute__((unused)) static void write_all(int fd, const void* from, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = write(fd, (const char*)from + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    CHECK(n > 0);
    done += (size_t)n;
  }
}

// Waits for a child that must exit with `status`.
__attribute__((unused)) static void wait_for_exit(pid_t child, int status) {
  int found = 0;
  pid_t waited;
  do {
    waited = waitpid(child, &found, 0);
  } while (waited < 0 && errno == EINTR);
  CHECK(waited == child);
  CHECK(WIFEXITED(found) && WEXITSTATUS(found) == status);
}

// A byte pattern that differs at each offset and for each seed.
__attribute__((unused)) static void fill(void* to, size_t size, unsigned seed) {
  for (size_t i = 0; i < size; i++) ((unsigned char*)to)[i] = (unsigned char)(seed * 31 + i * 7 + (i >> 8));
}
__attribute__((unused)) static int is_filled(const void* from, size_t size, unsigned seed) {
  for (size_t i = 0; i < size; i++) {
    if (((const unsigned char*)from)[i] != (unsigned char)(seed * 31 + i * 7 + (i >> 8))) return 0;
  }
  return 1;
}

// A loopback address of the family, port 0; returns its length.
__attribute__((unused)) static socklen_t loopback(int family, struct sockaddr_storage* address) {
  memset(address, 0, sizeof *address);
  address->ss_family = (sa_family_t)family;
  if (family == AF_INET) {
    ((struct sockaddr_in*)address)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return sizeof(struct sockaddr_in);
  }
  ((struct sockaddr_in6*)address)->sin6_addr = in6addr_loopback;
  return sizeof(struct sockaddr_in6);
}

// A socket of the type bound to a free loopback port, listening if it is a stream; its address goes to `address`.
__attribute__((unused)) static int bound_socket(int family, int type, struct sockaddr_storage* address) {
  socklen_t length = loopback(family, address);
  const int fd = MUST(socket(family, type, 0));
  MUST(bind(fd, (struct sockaddr*)address, length));
  MUST(getsockname(fd, (struct sockaddr*)address, &length));
  if (type == SOCK_STREAM) MUST(listen(fd, 64));
  return fd;
}

// A connected stream socket.
__attribute__((unused)) static int connected_to(const struct sockaddr_storage* address) {
  const int fd = MUST(socket(address->ss_family, SOCK_STREAM, 0));
  MUST(connect(fd, (const struct sockaddr*)address,
               address->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)));
  return fd;
}
