// Memory can be written to and executed in a replay where it could be in the recording: System V segments that are attached only to be read, or to
// execute what they hold; and what threads map that may execute all that they can read.
// images: 1
#include "test.h"

#include <setjmp.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/shm.h>

enum { kSize = 8192 };

// mov $42, %eax; ret
static const unsigned char answer[] = {0xb8, 42, 0, 0, 0, 0xc3};
static sigjmp_buf after;

static void on_fault(int signal) { siglongjmp(after, signal); }

static int can_write(void* at) {
  if (sigsetjmp(after, 1)) return 0;
  *(volatile char*)at = answer[0];
  return 1;
}

static int can_execute(void* at) {
  int (*function)(void);
  memcpy(&function, &at, sizeof function);
  if (sigsetjmp(after, 1)) return 0;
  CHECK(function() == 42);
  return 1;
}

static void segments(void) {
  const int id = MUST(shmget(IPC_PRIVATE, kSize, IPC_CREAT | 0700));
  unsigned char* const plain = MUST(shmat(id, NULL, 0));
  unsigned char* const read_only = MUST(shmat(id, NULL, SHM_RDONLY));
  unsigned char* const code = MUST(shmat(id, NULL, SHM_EXEC));
  unsigned char* const both = MUST(shmat(id, NULL, SHM_EXEC | SHM_RDONLY));
  MUST(shmctl(id, IPC_RMID, NULL));
  memcpy(plain, answer, sizeof answer);
  CHECK(can_write(plain) && !can_execute(plain));
  CHECK(!can_write(read_only) && !can_execute(read_only));
  CHECK(can_write(code) && can_execute(code));
  CHECK(!can_write(both) && can_execute(both));
  pass_checkpoints();
  CHECK(!can_write(both) && can_execute(both));
  unsigned char* const moved = MUST(mremap(both, kSize, kSize, MREMAP_MAYMOVE | MREMAP_FIXED, read_only));
  CHECK(!can_write(moved) && can_execute(moved));
  MUST(mprotect(code, kSize, PROT_READ));
  CHECK(!can_write(code) && !can_execute(code));
}

static unsigned char* map(int protection) {
  unsigned char* const made = MUST(mmap(NULL, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  memcpy(made, answer, sizeof answer);
  if (protection != (PROT_READ | PROT_WRITE)) MUST(mprotect(made, kSize, protection));
  return made;
}

static void* map_to_be_read(void* unused) {
  (void)unused;
  return map(PROT_READ);
}

static unsigned char* mapped_by_thread(void) {
  pthread_t thread;
  void* made = NULL;
  MUST0(pthread_create(&thread, NULL, map_to_be_read, NULL));
  MUST0(pthread_join(thread, &made));
  return made;
}

static void check_implied(int implied) {
  CHECK(can_execute(map(PROT_READ | PROT_WRITE)) == implied);
  CHECK(can_execute(map(PROT_READ)) == implied);
  CHECK(!can_execute(map(PROT_NONE)));
  CHECK(can_execute(mapped_by_thread()) == implied);
  unsigned char* const heap = MUST(sbrk(3 * kSize));
  memcpy(heap + 2 * kSize, answer, sizeof answer);
  CHECK(can_execute(heap + 2 * kSize) == implied);
  const pid_t child = MUST(fork());
  if (child == 0) _exit(can_execute(map(PROT_READ)));
  int status = 0;
  CHECK(MUST(waitpid(child, &status, 0)) == child && WIFEXITED(status) && WEXITSTATUS(status) == implied);
}

static void readable_code(void) {
  unsigned char* const before = map(PROT_READ);
  const int was = MUST(personality(0xffffffff));
  CHECK(personality(READ_IMPLIES_EXEC) == was);
  CHECK(!can_execute(before));
  check_implied(1);
  CHECK(personality(0xffffffff) == READ_IMPLIES_EXEC);
  pass_checkpoints();
  CHECK(!can_execute(before));
  check_implied(1);
  CHECK(personality((unsigned long)was) == READ_IMPLIES_EXEC);
  check_implied(0);
}

int main(void) {
  signal(SIGSEGV, on_fault);
  segments();
  readable_code();
  return ok("as they were asked for");
}
