// Descriptors sent through a unix socket: a pipe's end, a socket and a file, used by their receivers.
#include "test.h"

#include <fcntl.h>

static void send_descriptors(int socket, const int* fds, int count) {
  char byte = (char)count, control[CMSG_SPACE(sizeof(int) * 8)] = {0};
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control};
  message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
  struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
  memcpy(CMSG_DATA(header), fds, sizeof(int) * (size_t)count);
  CHECK(sendmsg(socket, &message, 0) == 1);
}

static void receive_descriptors(int socket, int* fds, int count) {
  char byte, control[CMSG_SPACE(sizeof(int) * 8)];
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  CHECK(recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1 && byte == count);
  struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  CHECK(header && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof(int) * (size_t)count));
  memcpy(fds, CMSG_DATA(header), sizeof(int) * (size_t)count);
}

int main(void) {
  int channel[2];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
  const pid_t child = MUST(fork());
  if (child == 0) {  // has only the channel in common with the parent
    int got[3];
    char text[8] = {0};
    receive_descriptors(channel[1], got, 3);
    for (int i = 0; i < 50; i++) {
      read_all(got[0], text, 4);
      CHECK(strcmp(text, "pipe") == 0);
      write_all(got[1], "sock", 4);
    }
    CHECK((fcntl(got[0], F_GETFD) & FD_CLOEXEC) && pread(got[2], text, 4, 0) == 4 && strcmp(text, "file") == 0);
    _exit(0);
  }
  int ends[2], sockets[2];
  char text[8] = {0};
  MUST(pipe(ends));
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
  const int file = MUST(open("scm.data", O_RDWR | O_CREAT | O_TRUNC, 0600));
  write_all(file, "file", 4);
  MUST(unlink("scm.data"));
  send_descriptors(channel[0], (int[]){ends[0], sockets[1], file}, 3);
  MUST(close(ends[0]));
  MUST(close(sockets[1]));
  for (int i = 0; i < 50; i++) {
    write_all(ends[1], "pipe", 4);
    read_all(sockets[0], text, 4);
    CHECK(strcmp(text, "sock") == 0);
  }
  wait_for_exit(child, 0);
  CHECK(read(sockets[0], text, 1) == 0);
  return ok("3 descriptors");
}
