// Signals that a program ignores, and a mapping for which a recorder may have to stop others, do not end any of its calls. This includes
// calls that the kernel does not enter again by itself when the thread is woken up. A signal with a handler does end them.
#include "test.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sem.h>
#include <sys/time.h>
#include <time.h>

static int epoll, semaphores, connection[2];

static int by_epoll_wait(int timeout_ms) {
  struct epoll_event event;
  return epoll_wait(epoll, &event, 1, timeout_ms);
}
static int by_epoll_pwait(int timeout_ms) {
  struct epoll_event event;
  sigset_t none;
  sigemptyset(&none);
  return epoll_pwait(epoll, &event, 1, timeout_ms, &none);
}
static int by_sigtimedwait(int timeout_ms) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  const int signal = sigtimedwait(&set, NULL, &(struct timespec){timeout_ms / 1000, timeout_ms % 1000 * 1000000L});
  return signal == -1 && errno == EAGAIN ? 0 : signal;
}
static int by_semtimedop(int timeout_ms) {
  struct sembuf take = {.sem_num = 0, .sem_op = -1};
  const int done =
      semtimedop(semaphores, &take, 1, &(struct timespec){timeout_ms / 1000, timeout_ms % 1000 * 1000000L});
  return done == -1 && errno == EAGAIN ? 0 : done;
}
static int by_recv(int timeout_ms) {
  const struct timeval timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
  MUST(setsockopt(connection[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout));
  char byte;
  const ssize_t got = recv(connection[0], &byte, 1, 0);
  return got == -1 && errno == EAGAIN ? 0 : (int)got;
}
static int by_poll(int timeout_ms) {
  struct pollfd one = {.fd = connection[0], .events = POLLIN};
  return poll(&one, 1, timeout_ms);
}

static int (*const waits[])(int) = {by_epoll_wait, by_epoll_pwait, by_sigtimedwait, by_semtimedop, by_recv, by_poll};
enum { kWaits = sizeof waits / sizeof waits[0], kRounds = 6 };

static volatile sig_atomic_t handled;
static void handle(int signal) { handled += signal == SIGUSR1; }

static void pause_ms(int ms) { usleep((unsigned)ms * 1000); }

int main(void) {
  epoll = MUST(epoll_create1(0));
  semaphores = MUST(semget(IPC_PRIVATE, 1, 0600));
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, connection));
  MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, connection[0], &(struct epoll_event){.events = EPOLLIN}));
  CHECK(signal(SIGUSR1, SIG_IGN) != SIG_ERR && signal(SIGUSR2, SIG_DFL) != SIG_ERR);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  MUST(sigprocmask(SIG_BLOCK, &set, NULL));

  // The end of a child is an ignored signal; the child sends another one first.
  for (int i = 0; i < kWaits * kRounds; i++) {
    const pid_t child = MUST(fork());
    if (child == 0) {
      pause_ms(3 + i / kWaits);
      MUST(kill(getppid(), SIGUSR1));
      pause_ms(3);
      _exit(0);
    }
    CHECK(waits[i % kWaits](30) == 0);
    wait_for_exit(child, 0);
  }

  // Units that share memory become one. This memory becomes shared while the other process waits.
  char path[] = "shared.XXXXXX";
  const int file = MUST(mkstemp(path));
  MUST(unlink(path));
  MUST(ftruncate(file, 4096));
  for (int i = 0; i < kWaits; i++) {
    const pid_t child = MUST(fork());
    if (child == 0) {
      pause_ms(3);
      volatile int* shared = MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
      shared[0]++;
      _exit(0);
    }
    volatile int* shared = MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    CHECK(waits[i](30) == 0);
    wait_for_exit(child, 0);
    CHECK(shared[0] == i + 1);
    MUST(munmap((void*)shared, 4096));
  }

  MUST(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handle, .sa_flags = SA_RESTART}, NULL));
  for (int i = 0; i < kWaits; i++) {
    const pid_t child = MUST(fork());
    if (child == 0) {
      pause_ms(20);
      MUST(kill(getppid(), SIGUSR1));
      _exit(0);
    }
    const int before = handled;
    errno = 0;
    CHECK(waits[i](20000) == -1 && errno == EINTR && handled == before + 1);
    wait_for_exit(child, 0);
  }
  MUST(semctl(semaphores, 0, IPC_RMID));
  return ok("%d handled", (int)handled);
}
