// A library to be preloaded into redrive: lets one of its calls fail, as the kernel could. In other programs it does
// nothing.
//
//   FAIL_CALL=NAME   which (names below)        FAIL_AT=N   the Nth of them in a process and its forks, from 1 on
//   FAIL_ERRNO=E     with this number           FAIL_LOG=F  appends a line to F when it has failed
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static const char* failing;
static long fail_at;
static int fail_errno;
static atomic_long made;

__attribute__((constructor)) static void begin(void) {
  char path[256];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
  if (size <= 0) return;
  path[size] = 0;
  const char* const name = strrchr(path, '/');
  if (!name || strcmp(name, "/redrive") != 0) return;
  const char *at = getenv("FAIL_AT"), *number = getenv("FAIL_ERRNO");
  if (!at || !number) return;
  fail_at = atol(at), fail_errno = atoi(number), failing = getenv("FAIL_CALL");
}

static int fails(const char* call) {
  if (!failing || strcmp(call, failing) != 0 || atomic_fetch_add(&made, 1) + 1 != fail_at) return 0;
  const char* const log = getenv("FAIL_LOG");
  int (*const real_open)(const char*, int, ...) = dlsym(RTLD_NEXT, "open");
  ssize_t (*const real_write)(int, const void*, size_t) = dlsym(RTLD_NEXT, "write");
  const int fd = log ? real_open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (fd >= 0) real_write(fd, "failed\n", 7), close(fd);
  errno = fail_errno;
  return 1;
}

// Only writes to files fail, not those to another process's memory.
static int write_fails(int fd) {
  char name[64], path[16];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(name, path, sizeof path - 1);
  return !(size > 6 && memcmp(path, "/proc/", 6) == 0) && fails("write");
}

#define NEXT(type, name) (*(type)(dlsym(RTLD_NEXT, name)))

ssize_t write(int fd, const void* data, size_t size) {
  return write_fails(fd) ? -1 : NEXT(ssize_t(*)(int, const void*, size_t), "write")(fd, data, size);
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t at) {
  return write_fails(fd) ? -1 : NEXT(ssize_t(*)(int, const void*, size_t, off64_t), "pwrite64")(fd, data, size, at);
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t at) { return pwrite64(fd, data, size, at); }
ssize_t writev(int fd, const struct iovec* pieces, int count) {
  return write_fails(fd) ? -1 : NEXT(ssize_t(*)(int, const struct iovec*, int), "writev")(fd, pieces, count);
}
int fsync(int fd) { return fails("sync") ? -1 : NEXT(int (*)(int), "fsync")(fd); }
int fdatasync(int fd) { return fails("sync") ? -1 : NEXT(int (*)(int), "fdatasync")(fd); }
int syncfs(int fd) { return fails("sync") ? -1 : NEXT(int (*)(int), "syncfs")(fd); }
int ftruncate(int fd, off_t size) { return fails("truncate") ? -1 : NEXT(int (*)(int, off_t), "ftruncate")(fd, size); }
int rename(const char* from, const char* to) {
  return fails("rename") ? -1 : NEXT(int (*)(const char*, const char*), "rename")(from, to);
}
int renameat(int old, const char* from, int new, const char* to) {
  return fails("rename") ? -1 : NEXT(int (*)(int, const char*, int, const char*), "renameat")(old, from, new, to);
}
int memfd_create(const char* name, unsigned flags) {
  return fails("memfd") ? -1 : NEXT(int (*)(const char*, unsigned), "memfd_create")(name, flags);
}
void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) {
  return fails("mmap") ? MAP_FAILED
                       : NEXT(void* (*)(void*, size_t, int, int, int, off_t), "mmap")(at, size, protection, flags, fd, offset);
}
pid_t fork(void) { return fails("fork") ? -1 : NEXT(pid_t(*)(void), "fork")(); }
int __clone(int (*body)(void*), void* stack, int flags, void* arg, ...) {
  va_list rest;
  va_start(rest, arg);
  pid_t* const parent = va_arg(rest, pid_t*);
  va_end(rest);
  return fails("fork") ? -1 : NEXT(int (*)(int (*)(void*), void*, int, void*, ...), "__clone")(body, stack, flags, arg, parent);
}
// openat2(2) has no function of its own.
long syscall(long number, ...) {
  va_list rest;
  va_start(rest, number);
  long args[6];
  for (int i = 0; i < 6; ++i) args[i] = va_arg(rest, long);
  va_end(rest);
  if (number == SYS_openat2 && fails("open")) return -1;
  return NEXT(long (*)(long, ...), "syscall")(number, args[0], args[1], args[2], args[3], args[4], args[5]);
}

static int open_by(const char* name, const char* path, int flags, unsigned mode) {
  return fails("open") ? -1 : NEXT(int (*)(const char*, int, ...), name)(path, flags, mode);
}
static unsigned mode_of(int flags, va_list rest) { return flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, unsigned) : 0; }
#define DEFINE_OPEN(name)                        \
  int name(const char* path, int flags, ...) {   \
    va_list rest;                                \
    va_start(rest, flags);                       \
    const unsigned mode = mode_of(flags, rest);  \
    va_end(rest);                                \
    return open_by(#name, path, flags, mode);    \
  }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)
int openat(int directory, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const unsigned mode = mode_of(flags, rest);
  va_end(rest);
  return fails("open") ? -1 : NEXT(int (*)(int, const char*, int, ...), "openat")(directory, path, flags, mode);
}
