// CLONE_CHILD_SETTID: when the kernel first runs a child, it writes the child's number to a word that the parent may read at once. A
// parent that shares the memory may or may not find the number there yet.
#include "test.h"

#include "clone3.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>

enum { kRounds = 60, kLooks = 20000, kStack = 65536, kNotYet = 1 };
enum { kThread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM };

static volatile int ran;
static void count(void) { ran++; }
static int run(void* unused) {
  (void)unused;
  count();
  return 0;
}

// Counts how often the number is not there yet, and notes what is.
static void look(const volatile pid_t* word, long child) {
  CHECK(child > 0);
  int before = 0;
  for (int i = 0; i < kLooks; i++) {
    const pid_t found = *word;
    CHECK(found == kNotYet || found == child || found == 0);  // natively it may have ended
    before += found == kNotYet;
  }
  NOTE(before);
  const pid_t last = *word;
  NOTE(last);
}

// The kernel clears the word when the thread has left its stack.
static void wait_for_end(volatile pid_t* word) {
  for (pid_t found; (found = *word) != 0;) syscall(SYS_futex, word, FUTEX_WAIT, found, NULL, NULL, 0);
}

int main(void) {
  char* const stack = MUST(mmap(NULL, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  volatile pid_t* const shared = MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  static volatile pid_t word;
  const int numbered = CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
  for (int i = 0; i < kRounds; i++) {
    word = kNotYet;
    look(&word, clone(run, stack + kStack, kThread | numbered, NULL, NULL, NULL, &word));
    wait_for_end(&word);

    word = kNotYet;
    struct clone_args arguments = {
        .flags = (uint64_t)(kThread | numbered),
        .child_tid = (uintptr_t)&word,
        .stack = (uintptr_t)stack,
        .stack_size = kStack,
    };
    look(&word, clone3_and_run(&arguments, count));
    wait_for_end(&word);

    word = kNotYet;
    const long borrower = clone(run, stack + kStack, CLONE_VM | CLONE_CHILD_SETTID | SIGCHLD, NULL, NULL, NULL, &word);
    look(&word, borrower);
    wait_for_exit((pid_t)borrower, 0);

    *shared = kNotYet;
    const long child = syscall(SYS_clone, CLONE_CHILD_SETTID | SIGCHLD, 0, 0, shared, 0);
    if (child == 0) _exit(*shared == getpid() ? 0 : 1);
    look(shared, child);
    wait_for_exit((pid_t)child, 0);
  }
  CHECK(ran == 3 * kRounds);
  return ok("%016llx", (unsigned long long)noted);
}
