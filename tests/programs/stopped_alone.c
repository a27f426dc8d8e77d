// A process with one thread is stopped, in a call or while it computes. Meanwhile its parent maps what the process has mapped, changes a
// file that it has mapped, or writes into its memory, and goes on; then the process continues, and finds what was written.
#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>

enum Place { itself, in_call, amid_code };

static int file, ends[2];
static char own[4096];

static void wait_to_be_stopped(enum Place place, volatile const char* changes) {
  char byte = 'r';
  CHECK(write(ends[1], &byte, 1) == 1);
  if (place == itself) MUST(raise(SIGSTOP));
  while (*changes == 'a') {
    if (place == in_call) usleep(1000);
  }
}

// A child that maps the file in this way, is stopped, and ends with what it finds then.
static pid_t start(enum Place place, int flags) {
  file = MUST(open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0600));
  CHECK(pwrite(file, "a", 1, 4095) == 1 && pwrite(file, "a", 1, 0) == 1);
  MUST(pipe(ends));
  own[0] = 'a';
  const pid_t child = MUST(fork());
  if (child == 0) {
    volatile const char* const at = flags ? MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags, file, 0)) : own;
    CHECK(*at == 'a');
    wait_to_be_stopped(place, at);
    _exit(*at);
  }
  char byte;
  CHECK(read(ends[0], &byte, 1) == 1);
  if (place != itself) MUST(kill(child, SIGSTOP));
  int status;
  CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
  return child;
}

static void go_on(pid_t child) {
  MUST(kill(child, SIGCONT));
  wait_for_exit(child, 'b');
  close(file), close(ends[0]), close(ends[1]);
}

int main(void) {
  for (enum Place place = itself; place <= amid_code; place++) {
    pid_t child = start(place, MAP_SHARED);
    char* const mapped = MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    CHECK(*mapped == 'a');
    *mapped = 'b';
    go_on(child);
    MUST(munmap(mapped, 4096));

    child = start(place, MAP_PRIVATE);
    CHECK(pwrite(file, "b", 1, 0) == 1);
    go_on(child);

    child = start(place, 0);
    struct iovec here = {"b", 1}, there = {own, 1};
    CHECK(process_vm_writev(child, &here, 1, &there, 1, 0) == 1);
    go_on(child);
  }
  return ok("stopped alone");
}
