// Memory can be written to and executed in a replay where it could be in the recording: System V segments that are attached only to be read, or to
// execute what they hold.
// images: 1
#include "test.h"

#include <setjmp.h>
#include <sys/ipc.h>
#include <sys/mman.h>
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

int main(void) {
  signal(SIGSEGV, on_fault);
  segments();
  return ok("as they were asked for");
}
