// Calls of the vsyscall page, which the kernel emulates: the time and the processor come from there as from other calls. If a kernel has
// no such page, only the faults are tested.
#include "test.h"

#include <setjmp.h>
#include <sys/time.h>
#include <time.h>

static sigjmp_buf behind_fault;
static void on_fault(int signal) {
  (void)signal;
  siglongjmp(behind_fault, 1);
}

int main(void) {
  int (*const get_time_of_day)(struct timeval*, void*) = (void*)0xffffffffff600000;
  time_t (*const get_time)(time_t*) = (void*)0xffffffffff600400;
  long (*const get_cpu)(unsigned*, unsigned*, void*) = (void*)0xffffffffff600800;
  signal(SIGSEGV, on_fault);
  for (volatile int i = 0; i < 200; i++) {
    if (sigsetjmp(behind_fault, 1)) continue;
    struct timeval now = {0, 0};
    time_t seconds = 0;
    unsigned processor = 77, node = 77;
    CHECK(get_time_of_day(&now, NULL) == 0 && now.tv_sec > 1000000000);
    CHECK(get_time(&seconds) == seconds && seconds >= now.tv_sec - 1 && get_time(NULL) >= seconds);
    CHECK(get_cpu(&processor, &node, NULL) == 0 && processor < 77000);
    NOTE(now), NOTE(seconds), NOTE(processor);
    if (i % 50 == 0) pass_checkpoints();
  }
  return ok("%016llx", (unsigned long long)noted);
}
