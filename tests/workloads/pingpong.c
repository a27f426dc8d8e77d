// Two processes send each other 64 bytes, back and forth.
// usage: pingpong pipe|unix|tcp ROUNDS
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(int good, const char* what) {
  if (good) return;
  perror(what);
  exit(1);
}

// Both ends of a TCP connection within one process.
static void tcp_pair(int ends[2]) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  const int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
  check(bind(listener, (struct sockaddr*)&address, length) == 0 && listen(listener, 1) == 0, "listen");
  check(getsockname(listener, (struct sockaddr*)&address, &length) == 0, "getsockname");
  ends[0] = socket(AF_INET, SOCK_STREAM, 0);
  check(connect(ends[0], (struct sockaddr*)&address, length) == 0, "connect");
  ends[1] = accept(listener, NULL, NULL);
  check(ends[1] >= 0, "accept");
  for (int i = 0; i < 2; i++) setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static uint64_t play(int in, int out, int rounds, int first) {
  uint64_t sum = 0;
  char ball[64] = {0};
  for (int i = 0; i < rounds; i++) {
    if (first || i > 0) {
      memset(ball, i, sizeof ball);
      check(write(out, ball, sizeof ball) == sizeof ball, "write");
    }
    check(read(in, ball, sizeof ball) == sizeof ball, "read");
    sum = sum * 31 + (unsigned char)ball[63];
  }
  if (!first) check(write(out, ball, sizeof ball) == sizeof ball, "write");
  return sum;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int rounds = atoi(argv[2]);
  int there[2], back[2];  // [0] to read, [1] to write
  if (strcmp(argv[1], "pipe") == 0) {
    check(pipe(there) == 0 && pipe(back) == 0, "pipe");
  } else {
    int ends[2];
    if (strcmp(argv[1], "tcp") == 0) {
      tcp_pair(ends);
    } else {
      check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
    }
    there[1] = back[0] = ends[0];
    there[0] = back[1] = ends[1];
  }
  const pid_t child = fork();
  check(child >= 0, "fork");
  if (child == 0) {
    play(there[0], back[1], rounds, 0);
    _exit(0);
  }
  const uint64_t sum = play(back[0], there[1], rounds, 1);
  int status = 1;
  check(waitpid(child, &status, 0) == child && status == 0, "child");
  printf("ok %016lx\n", sum);
  return 0;
}
