// Every command of fcntl that another program of this directory does not need: duplicates, owners, leases, locks, pipes, seals, hints.
#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>

static void descriptors(int file) {
  const int copy = MUST(fcntl(file, F_DUPFD, 100));
  CHECK(copy >= 100 && fcntl(copy, F_GETFD) == 0);
  int same = -1, other = -1;
  if (MAY(same = fcntl(file, 1027 /* F_DUPFD_QUERY */, copy), EINVAL)) CHECK(same == 1);
  MUST(close(copy));
  const int second = MUST(fcntl(file, F_DUPFD_CLOEXEC, 0));
  CHECK(fcntl(second, F_GETFD) == FD_CLOEXEC);
  MUST(close(second));
  if (MAY(other = fcntl(file, 1028 /* F_CREATED_QUERY */), EINVAL)) CHECK(other == 1);
  MAY(fcntl(file, 1029 /* F_CANCELLK */, 0), EINVAL);
  FAILS(fcntl(file, 4711, 0), EINVAL);
}

static void owners(void) {
  int ends[2];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
  struct f_owner_ex owner = {F_OWNER_PID, getpid()}, found = {77, 77};
  MUST(fcntl(ends[0], F_SETOWN_EX, &owner));
  MUST(fcntl(ends[0], F_GETOWN_EX, &found));
  CHECK(found.type == F_OWNER_PID && found.pid == getpid());
  MUST(fcntl(ends[0], F_SETOWN, -getpgrp()));
  found.type = 77;
  MUST(fcntl(ends[0], F_GETOWN_EX, &found));
  CHECK(found.type == F_OWNER_PGRP && found.pid == getpgrp());
  MUST(fcntl(ends[0], F_SETOWN, getpid()));
  CHECK(syscall(SYS_fcntl, ends[0], F_GETOWN) == getpid());  // a group would look like an error
  uid_t ids[2] = {77, 77};
  if (MAY(fcntl(ends[0], 17 /* F_GETOWNER_UIDS */, ids), EINVAL)) CHECK(ids[0] == getuid() && ids[1] == geteuid());
  MUST(fcntl(ends[0], F_SETSIG, SIGUSR1));
  CHECK(fcntl(ends[0], F_GETSIG) == SIGUSR1);
  MUST(close(ends[0]));
  MUST(close(ends[1]));
}

static void leases_and_hints(int file) {
  CHECK(fcntl(file, F_GETLEASE) == F_UNLCK);
  const int reader = MUST(open("file", O_RDONLY));
  MAY(fcntl(reader, F_SETLEASE, F_RDLCK), EAGAIN, EINVAL);  // the file is open for writing, too
  MUST(close(reader));
  const int directory = MUST(open(".", O_RDONLY | O_DIRECTORY));
  if (MAY(fcntl(directory, F_NOTIFY, DN_CREATE), EINVAL)) MUST(fcntl(directory, F_NOTIFY, 0));
  MUST(close(directory));
  uint64_t hint = RWH_WRITE_LIFE_SHORT, found = 77;
  MUST(fcntl(file, F_SET_RW_HINT, &hint));
  MUST(fcntl(file, F_GET_RW_HINT, &found));
  CHECK(found == hint);
  found = 77;
  if (MAY(fcntl(file, F_SET_FILE_RW_HINT, &hint), EINVAL)) CHECK(fcntl(file, F_GET_FILE_RW_HINT, &found) == 0 && found == hint);
  MAY(fcntl(file, F_GET_FILE_RW_HINT, &found), EINVAL);
}

static void locks(int file) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 3, .l_len = 4};
  MUST(fcntl(file, F_OFD_SETLK, &lock));
  const int other = MUST(open("file", O_RDWR));
  struct flock found = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
  MUST(fcntl(other, F_OFD_GETLK, &found));
  CHECK(found.l_type == F_WRLCK && found.l_start == 3 && found.l_len == 4 && found.l_pid == -1);
  lock.l_type = F_UNLCK;
  MUST(fcntl(file, F_OFD_SETLK, &lock));
  lock.l_type = F_WRLCK;
  MUST(fcntl(other, F_OFD_SETLKW, &lock));
  MUST(close(other));
}

int main(void) {
  const int file = MUST(open("file", O_RDWR | O_CREAT, 0644));
  descriptors(file);
  owners();
  leases_and_hints(file);
  locks(file);

  int pipe_ends[2];
  MUST(pipe(pipe_ends));
  const int size = MUST(fcntl(pipe_ends[0], F_GETPIPE_SZ));
  CHECK(fcntl(pipe_ends[0], F_SETPIPE_SZ, 4096) == 4096 && size >= 4096);
  const int memory = MUST(memfd_create("sealed", MFD_ALLOW_SEALING));
  MUST(fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE));
  CHECK(fcntl(memory, F_GET_SEALS) == F_SEAL_WRITE);
  FAILS(write(memory, "x", 1), EPERM);
  return ok("%d", size);
}
