// Calls drawn at random, single ones and runs of equal ones, interrupted by signals from timers, from the program itself and from a
// second thread. Argument: the seed. System tests of the group `tiers` run it with other seeds (tests/system/tiers.py).
#include "test.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>

enum { kPage = 4096, kPages = 16, kSteps = 400 };

static volatile sig_atomic_t signals, faults;
static int data_file, ends[2];
static unsigned char* area;
static sigjmp_buf behind_fault;

// Handlers do not change what is drawn, because it is up to chance when they run.
static void on_signal(int number) {
  const int saved = errno;
  signals++;
  if (number == SIGALRM && signals % 3 == 0) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
  } else if (signals % 2) {
    char byte;
    CHECK(pread(data_file, &byte, 1, 0) == 1);
  }
  errno = saved;
}

static void on_fault(int number) {
  (void)number;
  faults++;
  siglongjmp(behind_fault, 1);
}

// The same call with the same result, again and again.
static void repeat_reads(unsigned times) {
  static unsigned char buffer[kPage];
  const size_t size = 1 + draw(sizeof buffer);
  MUST(lseek(data_file, 0, SEEK_SET));
  unsigned full = 0;
  ssize_t last;
  while ((last = MUST(read(data_file, buffer, size))) == (ssize_t)size && full < times) full++;
  const uint64_t left = 8 * kPage - (uint64_t)full * size;
  if (full < times) CHECK((uint64_t)last == left);
  note_bytes(buffer, (size_t)last);
}

static void repeat_polls(unsigned times) {
  struct pollfd end = {.fd = ends[0], .events = POLLIN};
  for (unsigned i = 0; i < times; i++) CHECK(poll(&end, 1, 0) == 0 || errno == EINTR);
  write_all(ends[1], "x", 1);
  CHECK(poll(&end, 1, 1000) == 1 || errno == EINTR);
  char byte = 0;
  read_all(ends[0], &byte, 1);
  CHECK(byte == 'x');
}

static void repeat_failures(unsigned times) {
  char byte;
  for (unsigned i = 0; i < times; i++) CHECK(read(ends[0], &byte, 1) == -1 && (errno == EAGAIN || errno == EINTR));
  for (unsigned i = 0; i < times; i++) CHECK(sched_yield() == 0);
}

static void change_memory(void) {
  unsigned char* const at = area + draw(kPages) * kPage;
  MUST(mprotect(at, kPage, PROT_READ));
  if (sigsetjmp(behind_fault, 1) == 0) {
    *at = 1;
    CHECK(!"a page that must not be written to was");
  }
  MUST(mprotect(at, kPage, PROT_READ | PROT_WRITE));
  fill(at, kPage, draw(100));
  if (draw(2)) MUST(madvise(at, kPage, MADV_DONTNEED));
  note_bytes(at, 64);
}

static void be_signalled(void) {
  sigset_t some, before;
  sigemptyset(&some);
  sigaddset(&some, SIGUSR1);
  const int was = signals;
  MUST(sigprocmask(SIG_BLOCK, &some, &before));
  MUST(raise(SIGUSR1));
  for (unsigned n = draw(4); n; n--) CHECK(getppid() > 0);
  MUST(sigprocmask(SIG_SETMASK, &before, NULL));
  CHECK(signals > was);
}

static void wait_a_moment(void) {
  const struct timespec time = {.tv_nsec = (long)draw(300) * 1000};
  CHECK(nanosleep(&time, NULL) == 0 || errno == EINTR);
}

static void set_timer(void) {
  const suseconds_t every = (suseconds_t)(200 + draw(3000));
  const struct itimerval value = {.it_interval = {.tv_usec = every}, .it_value = {.tv_usec = every}};
  const struct itimerval never = {{0, 0}, {0, 0}};
  MUST(setitimer(ITIMER_REAL, draw(4) ? &value : &never, NULL));
}

static volatile int over;
static void* send_signals(void* to) {
  const struct timespec pause = {.tv_nsec = 700000};
  while (!over) {
    nanosleep(&pause, NULL);
    MUST0(pthread_kill(*(pthread_t*)to, SIGUSR2));
  }
  return NULL;
}

int main(int count, char** arguments) {
  seed_random(count, arguments);
  for (int signal = 0; signal < 3; signal++) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = draw(2) ? SA_RESTART : 0};
    MUST(sigaction((const int[]){SIGALRM, SIGUSR1, SIGUSR2}[signal], &action, NULL));
  }
  struct sigaction action = {.sa_handler = on_fault};
  MUST(sigaction(SIGSEGV, &action, NULL));
  data_file = MUST(open("random_calls.data", O_RDWR | O_CREAT | O_TRUNC, 0600));
  static unsigned char page[kPage];
  memset(page, 7, sizeof page);  // so that equal reads return equal bytes
  for (int i = 0; i < 8; i++) write_all(data_file, page, sizeof page);
  MUST(pipe2(ends, O_NONBLOCK));
  area = MUST(mmap(NULL, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  pthread_t self = pthread_self(), other;
  const int threads = draw(2) != 0;
  if (threads) MUST0(pthread_create(&other, NULL, send_signals, &self));
  for (int step = 0; step < kSteps; step++) {
    const unsigned times = draw(3) ? draw(8) : draw(200);
    switch (draw(8)) {
      case 0:
        repeat_reads(times);
        break;
      case 1:
        repeat_polls(times);
        break;
      case 2:
        repeat_failures(times);
        break;
      case 3:
        change_memory();
        break;
      case 4:
        be_signalled();
        break;
      case 5:
        wait_a_moment();
        break;
      case 6:
        set_timer();
        break;
      default:
        noted += compute(random_state, (int)draw(3));
        break;
    }
  }
  over = 1;
  if (threads) MUST0(pthread_join(other, NULL));
  MUST(unlink("random_calls.data"));
  CHECK(faults > 0);
  return ok("%d faults, %d signals, %016llx", faults, signals, (unsigned long long)noted);
}
