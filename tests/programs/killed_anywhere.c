// Processes that are killed at any moment while they do different things: execute programs, start threads and
// processes, map memory, look at files that are adapted to a recording, catch signals, write to a parent. Nothing more
// is known of them afterwards than that they were killed. usage: killed_anywhere [KIND [COUNT]]
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "test.h"

enum { kEach = 3, kLongest_us = 10000 };

static char* const again[] = {"./killed_anywhere", "again", NULL};
static char buffer[65536];
static int ends[2];

static void execute_nothing(void) {
  execl("/nonexistent", "nonexistent", NULL);
  execl("/dev/null/none", "none", NULL);
}
static void execute(void) { execv(again[0], again); }
static void map_memory(void) {
  char* const at = MUST(mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  memset(at, 1, 65536);
  MUST(munmap(at, 65536));
}
static void map_code(void) {
  const int file = MUST(open("/proc/self/exe", O_RDONLY));
  MUST(munmap(MUST(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0)), 4096));
  MUST(close(file));
}
static void write_to_parent(void) { MUST(write(ends[1], buffer, 1000)); }
static void read_adapted_file(void) {
  const int file = MUST(open("/proc/self/status", O_RDONLY));
  MUST(read(file, buffer, sizeof buffer));
  MUST(close(file));
}
static void start_process(void) {
  const pid_t child = MUST(fork());
  if (child == 0) _exit(5);
  wait_for_exit(child, 5);
}
static void* nothing(void* unused) { return unused; }
static void start_thread(void) {
  pthread_t thread;
  MUST0(pthread_create(&thread, NULL, nothing, NULL));
  MUST0(pthread_join(thread, NULL));
}
static void* call(void* unused) {
  for (;;) usleep((useconds_t)getppid() % 10);
  return unused;
}
static void run_threads(void) {
  pthread_t thread;
  for (int i = 0; i < 2; i++) MUST0(pthread_create(&thread, NULL, call, NULL));
  call(NULL);
}
static void read_clock(void) {
  struct timespec now;
  struct stat info;
  MUST(clock_gettime(CLOCK_MONOTONIC, &now));
  MUST(stat("/", &info));
}
static void caught(int signal) { buffer[0] = (char)signal; }
static void signal_itself(void) {
  MUST(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = caught}, NULL));
  MUST(kill(getpid(), SIGUSR1));
}
static void work(void) { compute(1, 1); }

static void (*const kinds[])(void) = {execute_nothing, execute,           map_memory,    map_code,
                                      write_to_parent, read_adapted_file, start_process, start_thread,
                                      run_threads,     read_clock,        signal_itself, work};
enum { kKinds = sizeof kinds / sizeof kinds[0] };

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "again") == 0) execute();
  const int only = argc > 1 ? atoi(argv[1]) : -1, count = argc > 2 ? atoi(argv[2]) : kEach * kKinds;
  CHECK(only < kKinds);
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
  MUST(fcntl(ends[0], F_SETFL, O_NONBLOCK));
  for (int i = 0; i < count; i++) {
    const int kind = only >= 0 ? only : i % kKinds;
    const pid_t child = MUST(fork());
    while (child == 0) kinds[kind]();
    for (int left_us = rand() % kLongest_us; left_us > 0; left_us -= 500) {
      while (read(ends[0], buffer, sizeof buffer) > 0) continue;
      usleep(500);
    }
    MUST(kill(child, SIGKILL));
    int status;
    MUST(waitpid(child, &status, 0));
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
  return ok("%d killed", count);
}
