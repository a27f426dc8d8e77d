// images: 2
// Calls that sleep for a while, woken by signals that a handler takes or that are ignored: how long they sleep in total, how much of
// their time is left, and whether they fail with EINTR is the same as without a recorder.
#include "test.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

#define MS 1000000LL
enum { kTotal = 60, kSignal = 20 };  // milliseconds

static volatile sig_atomic_t handled;
static void count(int signal) { (void)signal, handled++; }

static long long now(void) {
  struct timespec time;
  MUST(clock_gettime(CLOCK_MONOTONIC, &time));
  return time.tv_sec * 1000 * MS + time.tv_nsec;
}
static struct timespec spec(long long ns) { return (struct timespec){ns / (1000 * MS), ns % (1000 * MS)}; }
static long long ns_of(struct timespec time) { return time.tv_sec * 1000 * MS + time.tv_nsec; }

static void set_timer(int first_ms, int then_ms) {
  MUST(setitimer(ITIMER_REAL, &(struct itimerval){{0, then_ms * 1000}, {0, first_ms * 1000}}, NULL));
}
static void set_action(void (*handler)(int), int flags) {
  MUST(sigaction(SIGALRM, &(struct sigaction){.sa_handler = handler, .sa_flags = flags}, NULL));
}

static int queue, ends[2], semaphore, pair[2], listener, refused;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static socklen_t address_size = sizeof address;
static uint32_t word = 1;

// Each sleeps for this long, and returns as the system call does. These end without an error if nothing else happens.
static int by_nanosleep(long long ns) { return nanosleep(&(struct timespec){ns / (1000 * MS), ns % (1000 * MS)}, NULL); }
static int by_clock(long long ns) {
  const struct timespec until = spec(now() + ns);
  errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
  return errno ? -1 : 0;
}
static int by_poll(long long ns) { return poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, (int)(ns / MS)); }
static int by_ppoll(long long ns) {
  struct timespec time = spec(ns);
  return ppoll(&(struct pollfd){ends[0], POLLIN, 0}, 1, &time, NULL);
}
static int by_select(long long ns) {
  fd_set set;
  FD_ZERO(&set);
  FD_SET(ends[0], &set);
  return select(ends[0] + 1, &set, NULL, NULL, &(struct timeval){ns / (1000 * MS), ns % (1000 * MS) / 1000});
}
static int by_epoll(long long ns) {
  struct epoll_event event;
  return epoll_wait(queue, &event, 1, (int)(ns / MS));
}
static int by_epoll_pwait(long long ns) {
  struct epoll_event event;
  sigset_t none;
  sigemptyset(&none);
  return epoll_pwait(queue, &event, 1, (int)(ns / MS), &none);
}
static int by_epoll_pwait2(long long ns) {
  struct epoll_event event;
  const struct timespec time = spec(ns);
  return (int)syscall(SYS_epoll_pwait2, queue, &event, 1, &time, NULL, 0);
}
// The kernel cannot write there what is left.
static const struct timespec* fixed(long long ns) {
  static const struct timespec times[] = {{0, kTotal * MS}, {1000, 0}};
  return &times[ns != kTotal * MS];
}
static int by_fixed_ppoll(long long ns) {
  return (int)syscall(SYS_ppoll, &(struct pollfd){ends[0], POLLIN, 0}, 1, fixed(ns), NULL, 0);
}
static int by_fixed_pselect(long long ns) {
  fd_set set;
  FD_ZERO(&set);
  FD_SET(ends[0], &set);
  const int result = (int)syscall(SYS_pselect6, ends[0] + 1, &set, NULL, NULL, fixed(ns), NULL);
  CHECK(!!FD_ISSET(ends[0], &set) == (result != 0));
  return result;
}
// ... and these with EAGAIN or ETIMEDOUT.
static int timed_out(int result) { return result == -1 && (errno == EAGAIN || errno == ETIMEDOUT) ? 0 : result; }
static int by_sigtimedwait(long long ns) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  const struct timespec time = spec(ns);
  const int result = timed_out(sigtimedwait(&set, NULL, &time));
  CHECK(ns_of(time) == ns);
  return result;
}
static int by_semaphore(long long ns) {
  const struct timespec time = spec(ns);
  return timed_out(semtimedop(semaphore, &(struct sembuf){0, -1, 0}, 1, &time));
}
static int by_futex(long long ns) {
  const struct timespec time = spec(ns);
  return timed_out((int)syscall(SYS_futex, &word, FUTEX_WAIT, 1, &time, NULL, 0));
}

// ... and these by the timeout of their socket.
static int with_timeout(int socket, int option, long long ns) {
  const struct timeval time = {ns / (1000 * MS), ns % (1000 * MS) / 1000};
  MUST(setsockopt(socket, SOL_SOCKET, option, &time, sizeof time));
  return socket;
}
static int by_receive(long long ns) {
  char byte;
  return timed_out((int)recv(with_timeout(pair[0], SO_RCVTIMEO, ns), &byte, 1, 0));
}
static int by_send(long long ns) { return timed_out((int)send(with_timeout(pair[0], SO_SNDTIMEO, ns), "x", 1, 0)); }
static int by_accept(long long ns) { return timed_out(accept(with_timeout(listener, SO_RCVTIMEO, ns), NULL, NULL)); }
static int by_connect(long long ns) {
  return timed_out(connect(with_timeout(refused, SO_SNDTIMEO, ns), (struct sockaddr*)&address, address_size));
}
// This one has received something.
static int by_receive_all(long long ns) {
  char bytes[2];
  CHECK(send(pair[1], "x", 1, 0) == 1);
  const ssize_t n = recv(with_timeout(pair[0], SO_RCVTIMEO, ns), bytes, 2, MSG_WAITALL);
  if (n != 1) return (int)n;
  errno = EINTR;  // if a handler has run
  return handled ? -1 : 0;
}

// Makes sockets at which calls sleep: nothing comes, nothing more can be sent, nobody connects, and no connection is accepted.
static void make_sockets(void) {
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  while (send(pair[0], "x", 1, MSG_DONTWAIT) == 1) continue;
  CHECK(errno == EAGAIN);
  listener = MUST(socket(AF_INET, SOCK_STREAM, 0));
  MUST(listen(listener, 1));
  const int full = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
  MUST(bind(full, (struct sockaddr*)&address, sizeof(sa_family_t)));
  MUST(getsockname(full, (struct sockaddr*)&address, &address_size));
  MUST(listen(full, 0));
  MUST(connect(MUST(socket(AF_UNIX, SOCK_STREAM, 0)), (struct sockaddr*)&address, address_size));
  refused = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
}

static const struct {
  const char* name;
  int (*sleep)(long long ns);
} calls[] = {
    {"nanosleep", by_nanosleep},   {"clock_nanosleep", by_clock}, {"poll", by_poll},
    {"ppoll", by_ppoll},           {"select", by_select},         {"epoll_wait", by_epoll},
    {"epoll_pwait", by_epoll_pwait}, {"sigtimedwait", by_sigtimedwait}, {"semtimedop", by_semaphore},
    {"futex", by_futex},           {"recv", by_receive},          {"send", by_send},
    {"accept", by_accept},         {"connect", by_connect},       {"recv, MSG_WAITALL", by_receive_all},
    {"epoll_pwait2", by_epoll_pwait2}, {"ppoll, read-only", by_fixed_ppoll}, {"pselect6, read-only", by_fixed_pselect},
};
enum { kCalls = sizeof calls / sizeof calls[0] };

// An ignored signal comes again and again: nobody sees it, and the time continues.
static void sleep_through(int call) {
  set_action(SIG_IGN, 0);
  handled = 0;
  set_timer(kSignal, kSignal);
  const long long began = now();
  if (calls[call].sleep(kTotal * MS) != 0) fprintf(stderr, "%s\n", calls[call].name), CHECK(!"ends with its timeout");
  const long long took = now() - began;
  set_timer(0, 0);
  // If its time began again with each signal, it would never end.
  if (took < (kTotal - 1) * MS) fprintf(stderr, "%s\n", calls[call].name), CHECK(!"sleeps long enough");
}

static void sleep_until_handled(int call, int flags) {
  set_action(count, flags);
  handled = 0;
  set_timer(kSignal, 0);
  const int result = calls[call].sleep(1000000 * MS);
  CHECK(result == -1 && errno == EINTR && handled == 1);
}

// What is left each time is what the sleep still had to last.
static void sleep_on(void) {
  set_action(count, 0);
  handled = 0;
  const long long began = now();
  set_timer(kSignal, kSignal);
  struct timespec left = spec(5 * kTotal * MS);
  long long last = ns_of(left);
  int interrupted = 0;
  long long call = now();
  while (nanosleep(&left, &left) == -1) {
    CHECK(errno == EINTR);
    CHECK(ns_of(left) < last && last - ns_of(left) <= now() - call);
    interrupted++;
    last = ns_of(left);
    call = now();
  }
  set_timer(0, 0);
  CHECK(now() - began >= (5 * kTotal - 1) * MS);
  CHECK(interrupted >= 1 && interrupted <= handled);
}

static void* disturb(void* sleeper) {
  for (int i = 0; i < 15; i++) {
    CHECK(nanosleep(&(struct timespec){0, 5 * MS}, NULL) == 0);
    MUST0(pthread_kill(*(pthread_t*)sleeper, SIGWINCH));
  }
  return NULL;
}
// Ignored signals of another thread do not end a sleep. Whether they leave something behind depends on the kernel; it is printed.
static void sleep_beside(void) {
  pthread_t self = pthread_self(), thread;
  MUST0(pthread_create(&thread, NULL, disturb, &self));
  for (int i = 0; i < 5; i++) {
    struct timespec left = {0};
    CHECK(nanosleep(&(struct timespec){0, 15 * MS}, &left) == 0);
    NOTE(left);
  }
  MUST0(pthread_join(thread, NULL));
}

static struct timespec whole = {0, kTotal * MS};
static void* disturb_and_read(void* sleeper) {
  for (int i = 0; i < 6; i++) {
    CHECK(nanosleep(&(struct timespec){0, 8 * MS}, NULL) == 0);
    CHECK(ns_of(*(volatile struct timespec*)&whole) == kTotal * MS);
    MUST0(pthread_kill(*(pthread_t*)sleeper, SIGWINCH));
  }
  return NULL;
}
// Others find the timeout as it is while the thread sleeps.
static void share_time(void) {
  pthread_t self = pthread_self(), thread;
  MUST0(pthread_create(&thread, NULL, disturb_and_read, &self));
  const long long began = now();
  CHECK(timed_out(semtimedop(semaphore, &(struct sembuf){0, -1, 0}, 1, &whole)) == 0);
  CHECK(now() - began >= (kTotal - 1) * MS);
  MUST0(pthread_join(thread, NULL));
}

static void* idle(void* unused) {
  char byte;
  CHECK(read(ends[0], &byte, 1) == 1);
  return unused;
}

static void all(void) {
  for (int call = 0; call < kCalls; call++) {
    sleep_through(call);
    sleep_until_handled(call, 0);
    sleep_until_handled(call, SA_RESTART);
  }
  sleep_on();
}

int main(void) {
  queue = MUST(epoll_create1(0));
  MUST(pipe(ends));
  MUST(epoll_ctl(queue, EPOLL_CTL_ADD, ends[0], &(struct epoll_event){.events = EPOLLIN}));
  semaphore = MUST(semget(IPC_PRIVATE, 1, 0600));
  make_sockets();
  all();
  sleep_beside();
  share_time();
  pass_checkpoints();
  // The same beside another thread, which blocks the signal and sleeps all the time.
  sigset_t alarm, old;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  MUST0(pthread_sigmask(SIG_BLOCK, &alarm, &old));
  pthread_t thread;
  MUST0(pthread_create(&thread, NULL, idle, NULL));
  MUST0(pthread_sigmask(SIG_SETMASK, &old, NULL));
  all();
  write_all(ends[1], "x", 1);
  MUST0(pthread_join(thread, NULL));
  MUST(semctl(semaphore, 0, IPC_RMID));
  return ok("woken %016lx", noted);
}
