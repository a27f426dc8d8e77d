// The copies of a program that checkpoints need do not change what its calls answer: they are not attached to its shared memory, get no
// signals, and keep nothing mounted.
// period: 50ms
#include "test.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <time.h>

enum { kMegabytes = 32, kRounds = 3 };

static const char mounted[] = "mounted";

// Changes much memory, so that checkpoints are due, and take a while to store. `look` is called again and again.
static void work(void (*look)(void)) {
  static char memory[kMegabytes << 20];
  struct timespec begin, now;
  MUST(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin));
  do {
    for (int i = 0; i < kMegabytes; i++) {
      memset(memory + ((size_t)i << 20), i, 1 << 20);
      look();
    }
    MUST(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now));
  } while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < 150);
}

static int segment;

static void count_attached(void) {
  struct shmid_ds found;
  MUST(shmctl(segment, IPC_STAT, &found));
  CHECK(found.shm_nattch == 1);
}

static void attach(void) {
  segment = MUST(shmget(IPC_PRIVATE, 1 << 20, IPC_CREAT | 0600));
  void* const memory = MUST(shmat(segment, NULL, 0));
  MUST(shmctl(segment, IPC_RMID, NULL));
  work(count_attached);
  MUST(shmdt(memory));
}

static void signal_all(void) {
  FAILS(kill(-1, 0), ESRCH);
  FAILS(kill(-1, SIGKILL), ESRCH);
}

// The first process of a PID namespace, in which there is no other one.
static int be_alone(void) {
  const pid_t child = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, 0);
  if (!MAY(child)) return 0;
  if (child == 0) {
    CHECK(getpid() == 1);
    work(signal_all);
    _exit(3);
  }
  wait_for_exit(child, 3);
  return 1;
}

static void call(void) { CHECK(syscall(SYS_getppid) >= 0); }

static int mount_and_unmount(void) {
  if (!MAY(unshare(CLONE_NEWNS)) || !MAY(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))) return 0;
  MUST(mkdir(mounted, 0700));
  for (int round = 0; round < kRounds; round++) {
    if (!MAY(mount("none", mounted, "tmpfs", 0, NULL))) return 0;
    char name[64];
    snprintf(name, sizeof name, "%s/file", mounted);
    const int file = MUST(open(name, O_RDWR | O_CREAT, 0600));
    MUST(ftruncate(file, 4096));
    const volatile char* const mapped = MUST(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0));
    CHECK(*mapped == 0);
    MUST(close(file));
    work(call);
    MUST(munmap((void*)mapped, 4096));
    MUST(umount2(mounted, 0));
  }
  MUST(rmdir(mounted));
  return 1;
}

int main(void) {
  attach();
  const int alone = be_alone();
  const int unmounted = mount_and_unmount();
  return ok("%d %d", alone, unmounted);
}
