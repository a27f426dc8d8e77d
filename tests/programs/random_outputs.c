// Calls that write memory, with arguments drawn at random, good ones and bad ones: each result and all that the memory holds after it is shown by
// another call. Nothing is changed outside, and nothing sleeps. Argument: the seed. System tests of the group `tiers` run it with
// other seeds (tests/system/tiers.py).
#include "test.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>

enum { kPage = 4096, kArguments = 6, kFiles = 16, kSteps = 1500 };

// The arguments of a call: a descriptor (f), a directory (D), a path (p), memory that it writes (o), reads (i) or both, as a length (L); a size (s), a
// number (v), flags with MSG_DONTWAIT (M), 8 (8), a short timeout (t), nothing (0).
static const struct call {
  int number;
  const char* arguments;
} calls[] = {
    {SYS_read, "fos"},          {SYS_stat, "po"},           {SYS_fstat, "fo"},         {SYS_lstat, "po"},          {SYS_poll, "iv0"},
    {SYS_rt_sigaction, "v0o8"}, {SYS_rt_sigprocmask, "v0o8"}, {SYS_pread64, "fosv"},   {SYS_select, "viiit"},      {SYS_getitimer, "vo"},
    {SYS_socketpair, "vvvo"},   {SYS_accept, "foL"},        {SYS_recvfrom, "fosMoL"},  {SYS_recvmsg, "fiM"},       {SYS_getsockname, "foL"},
    {SYS_getpeername, "foL"},   {SYS_getsockopt, "fvvoL"},  {SYS_uname, "o"},          {SYS_getdents64, "fos"},    {SYS_getcwd, "os"},
    {SYS_readlink, "pos"},      {SYS_gettimeofday, "oo"},   {SYS_getrusage, "vo"},     {SYS_sysinfo, "o"},         {SYS_times, "o"},
    {SYS_getgroups, "vo"},      {SYS_getresuid, "ooo"},     {SYS_getresgid, "ooo"},    {SYS_capget, "io"},         {SYS_rt_sigpending, "o8"},
    {SYS_sigaltstack, "0o"},    {SYS_statfs, "po"},         {SYS_fstatfs, "fo"},       {SYS_sched_getparam, "vo"}, {SYS_getxattr, "ppos"},
    {SYS_listxattr, "pos"},     {SYS_sched_getaffinity, "0so"}, {SYS_timer_gettime, "vo"}, {SYS_clock_gettime, "vo"}, {SYS_clock_getres, "vo"},
    {SYS_epoll_wait, "fov0"},   {SYS_get_mempolicy, "oosvv"}, {SYS_mq_getsetattr, "f0o"}, {SYS_pselect6, "viiit0"}, {SYS_ppoll, "ivt08"},
    {SYS_get_robust_list, "0oo"}, {SYS_move_pages, "0viiov"}, {SYS_timerfd_gettime, "fo"}, {SYS_pipe2, "ov"},       {SYS_preadv, "fivvv"},
    {SYS_recvmmsg, "fivMt"},    {SYS_prlimit64, "0v0o"},    {SYS_name_to_handle_at, "Dpoov"}, {SYS_getcpu, "oo0"},  {SYS_sched_getattr, "0osv"},
    {SYS_getrandom, "osv"},     {SYS_copy_file_range, "fofosv"}, {SYS_statx, "Dpvvo"}, {SYS_sendfile, "ffo8"},      {SYS_mincore, "osv"},
    {SYS_readlinkat, "Dpos"},   {SYS_newfstatat, "Dpov"},   {SYS_timer_create, "v0o"}, {SYS_timer_create, "vio"},
};

static uint64_t draw_number(void) {
  static const uint64_t numbers[] = {0,  1,  2,  3,  4,  5,  6,   7,   8,    9,    10,         11,         13, 15, 16,
                                     17, 21, 23, 25, 31, 59, 128, 512, 1024, 4096, 0x7fffffff, 0x80000000, -1, -2, 0x80000};
  return numbers[draw(sizeof numbers / sizeof *numbers)];
}

static int files[kFiles];
static unsigned char *area, *constant;  // a page for each argument, and one that cannot be written to
static size_t area_size;

static void open_files(void) {
  int n = 0, pair[2];
  static char text[5000];
  files[n++] = MUST(open("random_outputs.data", O_RDWR | O_CREAT | O_TRUNC, 0600));
  write_all(files[0], text, sizeof text);
  MUST(pipe2(pair, O_NONBLOCK));
  write_all(pair[1], text, 100);
  files[n++] = pair[0], files[n++] = pair[1];
  for (int type = 0; type < 2; type++) {
    MUST(socketpair(AF_UNIX, (type ? SOCK_DGRAM : SOCK_STREAM) | SOCK_NONBLOCK, 0, pair));
    for (int i = 0; i < 5; i++) write_all(pair[1], text, 30);
    files[n++] = pair[0], files[n++] = pair[1];
  }
  struct epoll_event event = {.events = EPOLLIN | EPOLLOUT};
  files[n++] = MUST(epoll_create1(0));
  MUST(epoll_ctl(files[n - 1], EPOLL_CTL_ADD, files[1], &event));
  files[n++] = MUST(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
  files[n++] = MUST(eventfd(3, EFD_NONBLOCK));
  files[n++] = MUST(inotify_init1(IN_NONBLOCK));
  files[n++] = MUST(open(".", O_RDONLY | O_DIRECTORY));
  files[n++] = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
  files[n++] = MUST(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
  files[n++] = -1;
  files[n++] = 999;
  CHECK(n == kFiles);
}

// `whole`: it is as large as is said elsewhere.
static uint64_t draw_memory(int argument, int whole) {
  unsigned char* const at = area + (size_t)argument * kPage + draw(8) * 8;
  switch (draw(24)) {
    case 0:
      return 0;
    case 1:
      return 1;
    case 2:
      return (uintptr_t)constant;
    case 3:
      return (uintptr_t)(whole ? at : area + area_size - 8 * (1 + draw(4)));  // at its end: less than is needed
    default:
      return (uintptr_t)at;
  }
}

static uint64_t draw_input(int argument, int number) {
  uint64_t* const words = (uint64_t*)(area + (size_t)argument * kPage);
  for (int i = 0; i < 32; i++) {
    words[i] = draw(3) ? 0 : draw_number() & 0xffff;
    if (number == SYS_poll || number == SYS_ppoll) ((struct pollfd*)words)[i] = (struct pollfd){files[draw(kFiles)], (short)draw(64), 0x55};
  }
  if (number == SYS_recvmsg || number == SYS_recvmmsg || number == SYS_preadv) {
    words[8] = draw(8) ? (uintptr_t)(area + 7 * kPage) : 1;
    words[9] = 50;
    words[0] = number == SYS_preadv ? words[8] : 0;
    words[1] = number == SYS_preadv ? 50 : 0;
    words[2] = (uintptr_t)(words + 8);
    words[3] = 1;
    words[4] = words[5] = words[6] = 0;
  }
  const unsigned kind = draw(24);
  return kind == 0 ? 0 : kind == 1 ? (uintptr_t)constant : (uintptr_t)words;
}

static uint64_t draw_argument(const struct call* call, int argument) {
  static const char* const paths[] = {"random_outputs.data", ".", "nonexistent", "/proc/self/exe", "/dev/null", ""};
  static struct timespec soon;
  soon = (struct timespec){0, 1000};
  switch (call->arguments[argument]) {
    case 'f':
      return (uint64_t)(int64_t)files[draw(kFiles)];
    case 'D':
      return (uint64_t)(int64_t)(draw(2) ? AT_FDCWD : files[draw(kFiles)]);
    case 'p':
      return draw(20) ? (uintptr_t)paths[draw(6)] : 1;
    case 'o':
      return draw_memory(argument, strpbrk(call->arguments, "sL") != NULL);
    case 'i':
      return draw_input(argument, call->number);
    case 'L': {
      const uint64_t at = draw_memory(argument, 1);
      if (at > kPage && at != (uintptr_t)constant) *(uint32_t*)at = (uint32_t[]){0, 1, 4, 8, 16, 100, 1000, 4000}[draw(8)];
      return at;
    }
    case 's':
      return (uint64_t[]){0, 1, 8, 16, 64, 256, 1000, 4000}[draw(8)];
    case 'v':
      return draw_number();
    case 'M':
      return (draw_number() & 0xff) | MSG_DONTWAIT;
    case '8':
      return 8;
    case 't':
      return (uintptr_t)&soon;
    default:
      return 0;
  }
}

// Descriptors and timers that a call has made do not stay.
static void undo(int number, const uint64_t* arguments) {
  const int* const made = (const int*)arguments[number == SYS_pipe2 ? 0 : number == SYS_socketpair ? 3 : 2];
  if (number == SYS_pipe2 || number == SYS_socketpair) {
    MUST(close(made[0]));
    MUST(close(made[1]));
  }
  if (number == SYS_timer_create) MUST(syscall(SYS_timer_delete, *made));
}

static void make(const struct call* call) {
  uint64_t a[kArguments] = {0};
  memset(area, (int)draw(256), area_size);
  for (int i = 0; call->arguments[i]; i++) a[i] = draw_argument(call, i);
  const long result = syscall(call->number, a[0], a[1], a[2], a[3], a[4], a[5]);
  uint64_t hash = (uint64_t)result * 31 + (result < 0 ? (uint64_t)errno : 0);
  for (size_t i = 0; i < area_size / 8; i++) hash = (hash ^ ((uint64_t*)area)[i]) * 0x100000001b3ull;
  if (result >= 0) undo(call->number, a);
  CHECK(close(-1 - (int)(hash >> 40)) == -1);
}

int main(int count, char** arguments) {
  seed_random(count, arguments);
  area_size = 8 * kPage;
  area = MUST(mmap(NULL, area_size + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  MUST(munmap(area + area_size, kPage));
  // Behind it may lie the kernel's own page (vdso(7)), which no two runs have the same.
  constant = MUST(mmap(NULL, 2 * kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  MUST(munmap(constant + kPage, kPage));
  signal(SIGPIPE, SIG_IGN);
  open_files();
  for (int step = 0; step < kSteps; step++) make(&calls[draw(sizeof calls / sizeof *calls)]);
  MUST(unlink("random_outputs.data"));
  return ok("random_outputs");
}
