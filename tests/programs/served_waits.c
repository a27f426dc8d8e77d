// Waits and commands that a recorder may serve without a stop, by threads that take turns: waits that are over at once, that time out, or
// that must sleep; what a wait finds in memory and leaves there; masks, flags and futexes in between.
#include "test.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <time.h>

enum { kRounds = 300 };

static int ends[2];
static uint32_t turn, word;

static long futex(uint32_t* at, int operation, uint32_t value, const struct timespec* timeout) {
  return syscall(SYS_futex, at, operation | FUTEX_PRIVATE_FLAG, value, timeout, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void wait_for_turn(uint32_t mine) {
  for (uint32_t now; (now = __atomic_load_n(&turn, __ATOMIC_ACQUIRE)) % 2 != mine;) {
    const long result = futex(&turn, FUTEX_WAIT, now, NULL);
    CHECK(result == 0 || errno == EAGAIN);
  }
}
static void pass_turn(void) {
  __atomic_fetch_add(&turn, 1, __ATOMIC_RELEASE);
  CHECK(futex(&turn, FUTEX_WAKE, 1, NULL) <= 1);
}

// Calls that return at once, with the memory that they find and change.
static void futexes(int round) {
  static const struct timespec soon = {0, 1000}, wrong = {0, 2000000000}, negative = {-1, 0};
  word = (uint32_t)round;
  FAILS(futex(&word, FUTEX_WAIT, word + 1, NULL), EAGAIN);
  FAILS(futex(&word, FUTEX_WAIT, word + 1, &soon), EAGAIN);
  FAILS(futex(&word, FUTEX_WAIT, word + 1, &wrong), EINVAL);
  FAILS(futex(&word, FUTEX_WAIT, word + 1, &negative), EINVAL);
  FAILS(futex(&word, FUTEX_WAIT_BITSET, word + 1, &soon), EAGAIN);
  FAILS(futex(&word, FUTEX_WAIT, word, &soon), ETIMEDOUT);
  FAILS(futex(&word, FUTEX_WAIT_BITSET, word, &soon), ETIMEDOUT);
  FAILS(futex((uint32_t*)8, FUTEX_WAIT, 0, NULL), EFAULT);
  CHECK(futex(&word, FUTEX_WAKE, 1, NULL) == 0);
  uint32_t other = 5;
  CHECK(syscall(SYS_futex, &word, FUTEX_WAKE_OP, 1, 1, &other, FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 5)) == 0 && other == 8);
}

// What was in revents or in a set before a wait that times out is what the next call finds.
static void polls(int round) {
  struct pollfd both[2] = {{ends[0], POLLIN, (short)round}, {ends[1], POLLIN, (short)0x7f00}};
  CHECK(poll(both, 2, 1) == 0 && both[0].revents == 0 && both[1].revents == 0);
  both[0].revents = both[1].revents = 0x55;
  struct timespec time = {0, 100000};
  CHECK(syscall(SYS_ppoll, both, 2, &time, NULL, 8) == 0 && both[0].revents == 0 && time.tv_sec == 0 && time.tv_nsec == 0);
  time = (struct timespec){0, 2000000000};
  FAILS(syscall(SYS_ppoll, both, 2, &time, NULL, 8), EINVAL);
  fd_set set;
  FD_ZERO(&set);
  FD_SET(ends[0], &set);
  struct timeval moment = {0, 100};
  CHECK(syscall(SYS_select, ends[1] + 1, &set, NULL, NULL, &moment) == 0 && !FD_ISSET(ends[0], &set));
  CHECK(write(ends[1], &round, sizeof round) == sizeof round);
  FD_SET(ends[0], &set);
  moment = (struct timeval){5, 0};
  CHECK(syscall(SYS_select, ends[1] + 1, &set, NULL, NULL, &moment) == 1 && FD_ISSET(ends[0], &set) && moment.tv_sec <= 5);
  time = (struct timespec){5, 0};
  CHECK(syscall(SYS_pselect6, ends[1] + 1, &set, NULL, NULL, &time, NULL) == 1 && FD_ISSET(ends[0], &set));
  const sigset_t none = {{0}};
  const struct {
    const sigset_t* mask;
    size_t size;
  } mask = {&none, 8};
  CHECK(syscall(SYS_pselect6, ends[1] + 1, &set, NULL, NULL, NULL, &mask) == 1 && FD_ISSET(ends[0], &set));
  CHECK(syscall(SYS_ppoll, both, 2, NULL, &none, 8) == 1 && both[0].revents == POLLIN && both[1].revents == 0);
  int left = 0;
  CHECK(ioctl(ends[0], FIONREAD, &left) == 0 && left == sizeof round);
  CHECK(read(ends[0], &left, sizeof left) == sizeof left && left == round);
}

static void epolls(int poller, int round) {
  struct epoll_event found[2] = {{0}};
  const sigset_t none = {{0}};
  CHECK(syscall(SYS_epoll_pwait, poller, found, 2, 1, NULL, 8) == 0);
  CHECK(syscall(SYS_epoll_pwait, poller, found, 2, 0, &none, 8) == 0);
  CHECK(write(ends[1], &round, sizeof round) == sizeof round);
  CHECK(syscall(SYS_epoll_pwait, poller, found, 2, -1, NULL, 8) == 1 && found[0].data.u32 == 77);
  const struct timespec time = {5, 0};
  CHECK(syscall(441, poller, found, 2, &time, NULL, 8) == 1 || errno == ENOSYS);  // epoll_pwait2
  CHECK(read(ends[0], &round, sizeof round) == sizeof round);
}

// Flags, masks and advice. Only a descriptor that nobody else uses is made non-blocking.
static void commands(int round) {
  const int flags = MUST(fcntl(ends[0], F_GETFL));
  MUST(fcntl(ends[0], F_SETFL, flags | O_NONBLOCK));
  char byte;
  FAILS(read(ends[0], &byte, 1), EAGAIN);
  int on = 0;
  MUST(ioctl(ends[0], FIONBIO, &on));
  CHECK(MUST(fcntl(ends[0], F_GETFL)) == flags);
  MUST(fcntl(ends[0], F_SETFD, round % 2 ? FD_CLOEXEC : 0));
  CHECK(MUST(fcntl(ends[0], F_GETFD)) == round % 2);
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
  FAILS(fcntl(ends[0], F_SETLK, &lock), EBADF);
  FAILS(ioctl(ends[0], TCGETS, &byte), ENOTTY);
  static char page[8192] __attribute__((aligned(4096)));
  MUST(madvise(page, 4096, MADV_WILLNEED));
}

static volatile sig_atomic_t handled;
static void handler(int signal) { handled += signal == SIGUSR1; }

// A signal that is pending is delivered before the call that unblocks it returns.
static void masks(void) {
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  MUST0(pthread_sigmask(SIG_BLOCK, &set, &before));
  const int count = handled;
  MUST0(pthread_kill(pthread_self(), SIGUSR1));
  CHECK(handled == count);
  MUST0(pthread_sigmask(SIG_SETMASK, &before, &set));
  CHECK(handled == count + 1 && sigismember(&set, SIGUSR1) && !sigismember(&before, SIGUSR1));
}

static void* partner(void* unused) {
  for (int i = 0; i < kRounds; i++) {
    wait_for_turn(1);
    futexes(i);
    commands(i);
    pass_turn();
  }
  return unused;
}

int main(void) {
  MUST(pipe(ends));
  MUST(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handler}, NULL));
  const int poller = MUST(epoll_create1(0));
  MUST(epoll_ctl(poller, EPOLL_CTL_ADD, ends[0], &(struct epoll_event){.events = EPOLLIN, .data.u32 = 77}));
  pthread_t thread;
  for (int alone = 1; alone >= 0; alone--) {
    if (!alone) MUST0(pthread_create(&thread, NULL, partner, NULL));
    for (int i = 0; i < kRounds; i++) {
      if (!alone) wait_for_turn(0);
      futexes(i);
      polls(i);
      epolls(poller, i);
      commands(i);
      masks();
      if (!alone) pass_turn();
    }
  }
  MUST0(pthread_join(thread, NULL));
  return ok("%d signals, %u turns", handled, turn);
}
