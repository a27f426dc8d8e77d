// vfork: the child borrows the parent's memory until it execs or exits.
#include "test.h"

int main(int argc, char** argv) {
  if (argc > 1) return atoi(argv[1]);
  volatile int borrowed = 0;
  for (int i = 1; i <= 5; i++) {
    const pid_t child = vfork();
    if (child == 0) {
      borrowed = i;
      char number[4] = {(char)('0' + i), 0};
      execl("/proc/self/exe", "vfork_exec", number, (char*)NULL);
      _exit(127);
    }
    CHECK(child > 0 && borrowed == i);
    wait_for_exit(child, i);
  }
  const pid_t child = vfork();
  if (child == 0) {
    borrowed = 99;
    _exit(8);
  }
  CHECK(borrowed == 99);
  wait_for_exit(child, 8);
  return ok("6 children");
}
