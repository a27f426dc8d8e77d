// Policies, priorities, affinity, memory policies and limits: what was set can be read back.
#include "test.h"

#include <linux/membarrier.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/personality.h>
#include <sys/resource.h>

// As of <linux/sched/types.h>, which older C libraries cannot include.
struct attributes {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime, deadline, period;
};

static void policies(void) {
  struct sched_param parameters = {77};
  CHECK(syscall(SYS_sched_getscheduler, 0) == SCHED_OTHER);
  MUST(syscall(SYS_sched_getparam, 0, &parameters));
  CHECK(parameters.sched_priority == 0);
  MUST(syscall(SYS_sched_setparam, 0, &parameters));
  MUST(syscall(SYS_sched_setscheduler, 0, SCHED_BATCH, &parameters));
  CHECK(syscall(SYS_sched_getscheduler, 0) == SCHED_BATCH);
  struct attributes attributes = {0};
  MUST(syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0));
  CHECK(attributes.size >= 48 && attributes.policy == SCHED_BATCH);
  NOTE(attributes);
  attributes.policy = SCHED_OTHER;
  MUST(syscall(SYS_sched_setattr, 0, &attributes, 0));
  attributes.size = 1;  // the kernel returns the size that it knows
  FAILS(syscall(SYS_sched_setattr, 0, &attributes, 0), E2BIG);
  CHECK(attributes.size >= 48);
  CHECK(sched_get_priority_max(SCHED_FIFO) == 99 && sched_get_priority_min(SCHED_FIFO) == 1);
  struct timespec slice = {77, 77};
  MUST(syscall(SYS_sched_rr_get_interval, 0, &slice));
  CHECK(slice.tv_sec == 0);
  NOTE(slice);
}

static void priorities(void) {
  const int priority = (int)MUST(syscall(SYS_getpriority, PRIO_PROCESS, 0));  // 20 - nice
  CHECK(priority >= 1 && priority <= 40);
  MUST(setpriority(PRIO_PROCESS, 0, 20 - priority));
  const int io = MUST(syscall(SYS_ioprio_get, 1, 0));
  MUST(syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 7));
  CHECK(syscall(SYS_ioprio_get, 1, 0) == (2 << 13 | 7));
  NOTE(io);
}

static void affinity(void) {
  uint64_t set[16];
  memset(set, 0xee, sizeof set);
  const int size = MUST(syscall(SYS_sched_getaffinity, 0, sizeof set, set));
  CHECK(size > 0 && size <= (int)sizeof set);
  note_bytes(set, (size_t)size);
  MUST(syscall(SYS_sched_setaffinity, 0, size, set));
}

static void memory_policies(void) {
  int mode = 77;
  uint64_t nodes[16];
  memset(nodes, 0xee, sizeof nodes);
  if (!MAY(syscall(SYS_get_mempolicy, &mode, nodes, sizeof nodes * 8, NULL, 0))) return;
  CHECK(mode == MPOL_DEFAULT);
  NOTE(nodes);
  uint64_t node = 1;
  MUST(syscall(SYS_set_mempolicy, MPOL_BIND, &node, 2));
  MUST(syscall(SYS_get_mempolicy, &mode, nodes, sizeof nodes * 8, NULL, 0));
  CHECK(mode == MPOL_BIND && nodes[0] == 1);
  MUST(syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0));
  void* memory = aligned_alloc(4096, 8192);
  MUST(syscall(SYS_mbind, memory, 8192, MPOL_BIND, &node, 2, 0));
  MAY(syscall(SYS_set_mempolicy_home_node, memory, 8192, 0, 0));
  CHECK(syscall(SYS_migrate_pages, 0, 2, &node, &node) >= 0);
}

static void limits(void) {
  struct rlimit limit = {0, 0}, now;
  MUST(syscall(SYS_getrlimit, RLIMIT_NOFILE, &limit));
  CHECK(limit.rlim_cur > 3);
  limit.rlim_cur -= 1;
  MUST(syscall(SYS_setrlimit, RLIMIT_NOFILE, &limit));
  MUST(prlimit(0, RLIMIT_NOFILE, NULL, &now));
  CHECK(now.rlim_cur == limit.rlim_cur);
}

int main(void) {
  policies();
  priorities();
  affinity();
  memory_policies();
  limits();
  const int commands = MUST(syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0));
  if (commands & MEMBARRIER_CMD_GLOBAL) MUST(syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0));
  CHECK((personality(0xffffffff) & 0xff) == PER_LINUX);
  return ok("%016lx", noted);
}
