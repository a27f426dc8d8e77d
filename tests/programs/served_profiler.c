// A profiler: SIGPROF every millisecond of CPU time, in threads that make calls without end. Its handler makes calls too and looks at the
// interrupted place; every place that it is shown belongs to the program or to a library.
#include "test.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>

enum { kThreads = 3, kSamples = 12, kPlaces = 1024 };
static volatile sig_atomic_t samples;
static uintptr_t places[kPlaces];
static int zero, null;

static void sample(int signal, siginfo_t* info, void* context) {
  (void)signal, (void)info;
  const int saved = errno;
  const int number = __atomic_fetch_add(&samples, 1, __ATOMIC_RELAXED);
  places[number % kPlaces] = (uintptr_t)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
  struct timespec now;
  CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0 && getppid() > 0);
  CHECK(write(null, &now, sizeof now) == sizeof now);
  errno = saved;
}

// The answer of each call stays right, whatever interrupted it.
static void* work(void* number) {
  char bytes[100];
  for (uint64_t i = (uintptr_t)number; samples < kSamples; i++) {
    memset(bytes, 1, sizeof bytes);
    const ssize_t wanted = (ssize_t)(i % sizeof bytes);
    CHECK(read(zero, bytes, (size_t)wanted) == wanted);
    for (ssize_t j = 0; j < (ssize_t)sizeof bytes; j++) CHECK(bytes[j] == (j >= wanted));
    CHECK(write(null, bytes, sizeof bytes) == sizeof bytes);
    CHECK(lseek(zero, 0, SEEK_CUR) == 0);
    errno = 0;
    CHECK(read(-1, bytes, 1) == -1 && errno == EBADF);
    struct pollfd readable = {.fd = zero, .events = POLLIN};
    CHECK(poll(&readable, 1, 0) == 1 && readable.revents == POLLIN);
    struct stat about;
    CHECK(fstat(zero, &about) == 0 && S_ISCHR(about.st_mode));
  }
  return NULL;
}

int main(void) {
  zero = MUST(open("/dev/zero", O_RDONLY));
  null = MUST(open("/dev/null", O_WRONLY));
  MUST(sigaction(SIGPROF, &(struct sigaction){.sa_sigaction = sample, .sa_flags = SA_SIGINFO | SA_RESTART}, NULL));
  const struct itimerval every = {{0, 1000}, {0, 1000}}, off = {{0, 0}, {0, 0}};
  MUST(setitimer(ITIMER_PROF, &every, NULL));
  pthread_t threads[kThreads];
  for (uintptr_t i = 0; i < kThreads; i++) MUST0(pthread_create(&threads[i], NULL, work, (void*)i));
  for (int i = 0; i < kThreads; i++) MUST0(pthread_join(threads[i], NULL));
  samples = 0;  // and without other threads
  (void)work((void*)7);
  MUST(setitimer(ITIMER_PROF, &off, NULL));
  int strange = 0;
  for (int i = 0; i < kSamples; i++) {
    Dl_info found;
    strange += dladdr((void*)places[i], &found) == 0;
  }
  CHECK(strange == 0);
  return ok("%d samples", kSamples);
}
