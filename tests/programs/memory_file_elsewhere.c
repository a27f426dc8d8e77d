// What a program writes through /proc/PID/mem is there, however it came by the file: opened by openat2(2), from a procfs that is mounted
// elsewhere, in a chroot or in a PID namespace of its own, or by a process that passed the descriptor on.
#include "test.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

static volatile int word;
static const volatile char constant[4096] = "constant";

static int opened(const char* path) { return MUST(open(path, O_RDWR)); }

static int opened_by_openat2(const char* path) {
  struct open_how how = {.flags = O_RDWR};
  int memory = -1;
  return MAY(memory = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how)) ? memory : opened(path);
}

// The process whose memory it is ends with the last value that it found.
static void write_own(int memory) {
  for (int i = 1; i <= 50; i++) {
    const int next = word + i;
    CHECK(pwrite(memory, &next, sizeof next, (off_t)(uintptr_t)&word) == sizeof next);
    CHECK(word == next);
    if (i % 10 == 0) syscall(SYS_getppid);
  }
  CHECK(pwrite(memory, "X", 1, (off_t)(uintptr_t)constant) == 1 && constant[0] == 'X');
  MUST(close(memory));
  _exit(word % 64);
}

enum { kOwnResult = 50 * 51 / 2 % 64 };

static void by_openat2(void) { write_own(opened_by_openat2("/proc/self/mem")); }

static int mount_procfs(const char* where) {
  mkdir(where, 0700);
  return MAY(unshare(CLONE_NEWNS)) && MAY(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) &&
         MAY(mount("proc", where, "proc", 0, NULL));
}

static void mounted_elsewhere(void) {
  if (!mount_procfs("procfs")) _exit(kOwnResult);
  write_own(opened("procfs/self/mem"));
}

static void in_chroot(void) {
  mkdir("root", 0700);
  if (!mount_procfs("root/proc") || !MAY(chroot("root"))) _exit(kOwnResult);
  MUST(chdir("/"));
  write_own(opened("/proc/self/mem"));
}

static void in_pid_namespace(void) {
  const pid_t child = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, 0);
  if (!MAY(child)) _exit(kOwnResult);
  if (child == 0) {
    if (!mount_procfs("/proc")) _exit(kOwnResult);
    write_own(opened("/proc/self/mem"));
  }
  wait_for_exit(child, kOwnResult);
  _exit(kOwnResult);
}

static void run(void (*body)(void)) {
  const pid_t child = MUST(fork());
  if (child == 0) body();
  wait_for_exit(child, kOwnResult);
}

static void pass_on(int socket, int fd) {
  char byte = 'f', control[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &fd, sizeof fd);
  CHECK(sendmsg(socket, &message, 0) == 1);
}

static int passed(int socket) {
  char byte, control[CMSG_SPACE(sizeof(int))];
  struct iovec part = {&byte, 1};
  struct mmsghdr message = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control}};
  if (word) {
    CHECK(recvmsg(socket, &message.msg_hdr, 0) == 1);
  } else {
    CHECK(recvmmsg(socket, &message, 1, 0, NULL) == 1);
  }
  int fd;
  memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message.msg_hdr)), sizeof fd);
  return fd;
}

// Another process writes, by a descriptor that it has got from the one whose memory it is.
static void write_others(int how) {
  int channel[2];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
  const pid_t owner = MUST(fork());
  if (owner == 0) {
    const int memory = opened("/proc/self/mem");
    pass_on(channel[1], memory);
    char byte;
    CHECK(read(channel[1], &byte, 1) == 1);
    _exit(word);
  }
  const pid_t writer = MUST(fork());
  if (writer == 0) {
    word = how != 0;
    int memory = passed(channel[0]);
    if (how == 2) {  // it gets it once more, from the owner's table
      const int pidfd = (int)syscall(SYS_pidfd_open, owner, 0);
      MUST(close(memory));
      memory = -1;
      if (pidfd < 0 || !MAY(memory = (int)syscall(SYS_pidfd_getfd, pidfd, channel[1] + 1, 0))) _exit(1);
    }
    for (int i = 0; i < 20; i++) syscall(SYS_getppid);
    const int value = 42 + how;
    CHECK(pwrite(memory, &value, sizeof value, (off_t)(uintptr_t)&word) == sizeof value);
    CHECK(write(channel[0], "w", 1) == 1);
    _exit(0);
  }
  int status;
  CHECK(waitpid(writer, &status, 0) == writer);
  if (status != 0) {
    CHECK(how == 2 && WEXITSTATUS(status) == 1);
    MUST(kill(owner, SIGKILL));
    CHECK(waitpid(owner, &status, 0) == owner);
  } else {
    wait_for_exit(owner, 42 + how);
  }
  MUST(close(channel[0]));
  MUST(close(channel[1]));
}

int main(void) {
  run(by_openat2);
  run(mounted_elsewhere);
  run(in_chroot);
  run(in_pid_namespace);
  for (int how = 0; how < 3; how++) write_others(how);
  return ok("memory_file_elsewhere");
}
