// Calls that fail after they have written: what they have left in memory is there in a replay, too.
#include "test.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>

static uint32_t word, other;
static int to_owner[2], from_owner[2];

static void* own(void* unused) {
  (void)unused;
  const uint32_t self = (uint32_t)syscall(SYS_gettid);
  char byte = 0;
  __atomic_store_n(&word, self, __ATOMIC_SEQ_CST);
  CHECK(write(from_owner[1], &byte, 1) == 1 && read(to_owner[0], &byte, 1) == 1);
  uint32_t expected = self;
  const int unlocked = __atomic_compare_exchange_n(&word, &expected, 0, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  CHECK(!unlocked && expected == (self | FUTEX_WAITERS));
  MUST(syscall(SYS_futex, &word, FUTEX_UNLOCK_PI | FUTEX_PRIVATE_FLAG, 0, NULL, NULL, 0));
  return NULL;
}

int main(void) {
  // An unknown comparison is found after the operation.
  const int unknown = FUTEX_OP(FUTEX_OP_SET, 7, 9, 0);
  FAILS(syscall(SYS_futex, &word, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 1, 1L, &other, unknown), ENOSYS);
  NOTE(other);

  // The lock is marked as being waited for.
  pthread_t owner;
  char byte = 0;
  MUST(pipe(to_owner));
  MUST(pipe(from_owner));
  MUST0(pthread_create(&owner, NULL, own, NULL));
  CHECK(read(from_owner[0], &byte, 1) == 1);
  FAILS(syscall(SYS_futex, &word, FUTEX_TRYLOCK_PI | FUTEX_PRIVATE_FLAG, 0, NULL, NULL, 0), EAGAIN);
  CHECK(write(to_owner[1], &byte, 1) == 1);
  MUST0(pthread_join(owner, NULL));

  // A descriptor of the child has been made, and is taken back.
  int pidfd = -1;
  struct clone_args asked = {.flags = CLONE_PIDFD | CLONE_INTO_CGROUP, .pidfd = (uint64_t)(uintptr_t)&pidfd, .exit_signal = SIGCHLD};
  asked.cgroup = (uint64_t)MUST(open("/", O_RDONLY | O_DIRECTORY));
  const long child = syscall(SYS_clone3, &asked, sizeof asked);
  CHECK(child == -1);
  NOTE(pidfd);
  return ok("noted %llx", (unsigned long long)noted);
}
