// A program sees the processors that it has asked for, its threads and children those that they were given, and all of them run where
// they may. With one processor, little of this can be seen.
#include "test.h"

#include <sched.h>

static cpu_set_t mine(pid_t of) {
  cpu_set_t set;
  CPU_ZERO(&set);
  MUST(sched_getaffinity(of, sizeof set, &set));
  CHECK(CPU_COUNT(&set) > 0);
  return set;
}

static cpu_set_t only(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)processor, &set);
  return set;
}

static void expect(const cpu_set_t* wanted) {
  const cpu_set_t set = mine(0);
  CHECK(CPU_EQUAL(&set, wanted));
  const int here = MUST(sched_getcpu());
  CHECK(CPU_ISSET((size_t)here, wanted));
}

static void* check(void* wanted) {
  expect(wanted);
  return NULL;
}

static int last_of(const cpu_set_t* set) {
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET((size_t)last, set)) last--;
  return last;
}

int main(void) {
  const cpu_set_t all = mine(0);
  expect(&all);
  CHECK(sysconf(_SC_NPROCESSORS_ONLN) >= CPU_COUNT(&all));
  const cpu_set_t one = only(last_of(&all));
  MUST(sched_setaffinity(0, sizeof one, &one));
  expect(&one);
  pthread_t thread;
  MUST0(pthread_create(&thread, NULL, check, (void*)&one));
  MUST0(pthread_join(thread, NULL));
  // Processors that it may not use are left out of what it gets.
  cpu_set_t every;
  memset(&every, 0xff, sizeof every);
  MUST(sched_setaffinity(0, sizeof every, &every));
  const cpu_set_t most = mine(0);
  cpu_set_t both;
  CPU_AND(&both, &most, &all);
  CHECK(CPU_EQUAL(&both, &all));
  cpu_set_t none;
  CPU_ZERO(&none);
  FAILS(sched_setaffinity(0, sizeof none, &none), EINVAL);
  FAILS(sched_getaffinity(0, 1, &none), EINVAL);
  FAILS(sched_getaffinity(99999999, sizeof none, &none), ESRCH);
  MUST(sched_setaffinity(0, sizeof all, &all));
  // A child inherits; its parent may move it.
  int ends[2];
  MUST(pipe(ends));
  const pid_t child = MUST(fork());
  if (child == 0) {
    char byte;
    CHECK(read(ends[0], &byte, 1) == 1);
    expect(&one);
    _exit(3);
  }
  cpu_set_t its = mine(child);
  CHECK(CPU_EQUAL(&its, &all));
  MUST(sched_setaffinity(child, sizeof one, &one));
  its = mine(child);
  CHECK(CPU_EQUAL(&its, &one));
  write_all(ends[1], "x", 1);
  wait_for_exit(child, 3);
  expect(&all);
  return ok("%d processors", CPU_COUNT(&all));
}
