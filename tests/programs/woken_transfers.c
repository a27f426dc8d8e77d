// Blocking transfers of more bytes than fit, and others that take long without sleeping, amid which the thread is woken by what the program
// does not see: signals that are ignored, and the recorder, which reads the state of a program that goes on, joins processes that share
// memory, and stops those whose file is written to. Each is whole.
// period: 20ms
#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <termios.h>

enum { kSize = 512 << 10 };
static unsigned char bytes[kSize], got[kSize];

// A child that reads all of it, slowly, and checks it; and does `amid` before it reads the second half.
static pid_t slow_reader(int from, int others_end, void (*amid)(void)) {
  const pid_t child = MUST(fork());
  if (child != 0) return child;
  close(others_end);
  size_t done = 0;
  for (int i = 0; done < kSize; i++) {
    usleep(2000);
    if (done >= kSize / 2 && amid) amid(), amid = NULL;
    const ssize_t n = MUST(read(from, got + done, kSize / 16));
    CHECK(n > 0);
    done += (size_t)n;
  }
  _exit(memcmp(got, bytes, kSize) == 0 ? 0 : 1);
}

// Ends at once: its parent gets SIGCHLD, which is ignored.
static pid_t soon_ended(void) {
  const pid_t child = MUST(fork());
  if (child == 0) usleep(10000), _exit(0);
  return child;
}

static ssize_t by_write(int to) { return write(to, bytes, kSize); }
static ssize_t by_writev(int to) {
  struct iovec parts[3] = {{bytes, 1000}, {bytes + 1000, 300000}, {bytes + 301000, kSize - 301000}};
  return writev(to, parts, 3);
}
static ssize_t by_pwritev2(int to) {
  struct iovec parts[2] = {{bytes, 100000}, {bytes + 100000, kSize - 100000}};
  return pwritev2(to, parts, 2, -1, 0);
}
static ssize_t by_send(int to) { return send(to, bytes, kSize, MSG_NOSIGNAL); }
static ssize_t by_sendmsg(int to) {
  struct iovec parts[2] = {{bytes, 200000}, {bytes + 200000, kSize - 200000}};
  const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  return sendmsg(to, &message, 0);
}
static ssize_t by_sendmmsg(int to) {
  enum { kMessages = 8 };
  struct iovec parts[kMessages];
  struct mmsghdr messages[kMessages] = {0};
  for (size_t i = 0; i < kMessages; i++) {
    parts[i] = (struct iovec){bytes + i * (kSize / kMessages), kSize / kMessages};
    messages[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
  }
  CHECK(sendmmsg(to, messages, kMessages, 0) == kMessages);
  ssize_t sent = 0;
  for (size_t i = 0; i < kMessages; i++) sent += messages[i].msg_len;
  return sent;
}
static ssize_t by_sendfile(int to) {
  const int file = MUST(open("contents", O_RDWR | O_CREAT | O_TRUNC, 0600));
  CHECK(write(file, bytes, kSize) == kSize);
  off_t from = 0;
  const ssize_t n = sendfile(to, file, &from, kSize);
  CHECK(from == kSize);
  close(file);
  return n;
}

static void amid_signals(ssize_t (*transfer)(int), int socket) {
  int ends[2];
  if (socket) {
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
  } else {
    MUST(pipe(ends));
  }
  const pid_t reader = slow_reader(ends[0], ends[1], NULL);
  close(ends[0]);
  const pid_t other = soon_ended();
  CHECK(transfer(ends[1]) == kSize);
  close(ends[1]);
  wait_for_exit(reader, 0);
  wait_for_exit(other, 0);
}

// ... of a receiver that waits for all.
static void receive_amid_signals(int by_message) {
  int ends[2];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
  const pid_t sender = MUST(fork());
  if (sender == 0) {
    for (size_t done = 0; done < kSize; done += kSize / 16) {
      CHECK(send(ends[1], bytes + done, kSize / 16, 0) == kSize / 16);
      usleep(2000);
    }
    _exit(0);
  }
  const pid_t other = soon_ended();
  memset(got, 0, sizeof got);
  struct iovec parts[2] = {{got, 100000}, {got + 100000, kSize - 100000}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  const ssize_t n = by_message ? recvmsg(ends[0], &message, MSG_WAITALL) : recv(ends[0], got, kSize, MSG_WAITALL);
  CHECK(n == kSize && memcmp(got, bytes, kSize) == 0);
  wait_for_exit(sender, 0);
  wait_for_exit(other, 0);
  close(ends[0]), close(ends[1]);
}

enum { kDatagrams = 8 };
static struct mmsghdr* datagram_headers(unsigned char* to) {
  static struct iovec parts[kDatagrams];
  static struct mmsghdr headers[kDatagrams];
  for (size_t i = 0; i < kDatagrams; i++) {
    parts[i] = (struct iovec){to + i, 1};
    headers[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &parts[i], .msg_iovlen = 1}};
  }
  return headers;
}

// ... of many messages. With a timeout, too, which is over after the last one.
static void receive_messages_amid_signals(struct timespec* timeout) {
  int ends[2];
  MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
  const pid_t receiver = getpid(), sender = MUST(fork());
  if (sender == 0) {
    for (int i = 0; i < kDatagrams; i++) {
      CHECK(send(ends[1], bytes + i, 1, 0) == 1);
      usleep(1000);
      MUST(kill(receiver, SIGWINCH));
      usleep(1000);
    }
    _exit(0);
  }
  memset(got, 0, kDatagrams);
  CHECK(recvmmsg(ends[0], datagram_headers(got), kDatagrams, 0, timeout) == kDatagrams);
  CHECK(memcmp(got, bytes, kDatagrams) == 0);
  wait_for_exit(sender, 0);
  close(ends[0]), close(ends[1]);
}

// Waits for six bytes, of which three come later than a signal that is ignored.
static void least(int from, int to) {
  const pid_t other = soon_ended(), sender = MUST(fork());
  if (sender == 0) {
    CHECK(write(to, "abc", 3) == 3);
    usleep(30000);
    CHECK(write(to, "def", 3) == 3);
    _exit(0);
  }
  char got_of_it[20];
  CHECK(read(from, got_of_it, sizeof got_of_it) == 6 && memcmp(got_of_it, "abcdef", 6) == 0);
  wait_for_exit(sender, 0);
  wait_for_exit(other, 0);
  close(from), close(to);
}

static void least_of_socket(void) {
  int ends[2];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
  MUST(setsockopt(ends[0], SOL_SOCKET, SO_RCVLOWAT, &(int){6}, sizeof(int)));
  least(ends[0], ends[1]);
}

static void least_of_terminal(void) {
  const int master = MUST(posix_openpt(O_RDWR | O_NOCTTY));
  MUST(grantpt(master));
  MUST(unlockpt(master));
  const int terminal = MUST(open(ptsname(master), O_RDWR | O_NOCTTY));
  struct termios set;
  MUST(tcgetattr(terminal, &set));
  cfmakeraw(&set);
  set.c_cc[VMIN] = 6;
  MUST(tcsetattr(terminal, TCSANOW, &set));
  least(terminal, master);
}

static int busy = 1;
static void* compute_and_nap(void* unused) {
  (void)unused;
  uint64_t sum = 0;
  while (__atomic_load_n(&busy, __ATOMIC_RELAXED)) {
    sum += compute(sum, 50);
    usleep(500);
  }
  return NULL;
}

// Another thread goes on, so checkpoints are taken meanwhile.
static void amid_checkpoints(void) {
  int ends[2];
  MUST(pipe(ends));
  const pid_t reader = slow_reader(ends[0], ends[1], NULL);
  close(ends[0]);
  pthread_t other;
  MUST0(pthread_create(&other, NULL, compute_and_nap, NULL));
  CHECK(write(ends[1], bytes, kSize) == kSize);
  close(ends[1]);
  __atomic_store_n(&busy, 0, __ATOMIC_RELAXED);
  MUST0(pthread_join(other, NULL));
  wait_for_exit(reader, 0);
}

static int file;
static void map_too(void) { MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)); }
static void write_too(void) { CHECK(pwrite(file, "other", 5, 100) == 5); }

// The reader maps what the writer has mapped, or writes to it.
static void amid_changes(int flags, void (*change)(void)) {
  int ends[2];
  MUST(pipe(ends));
  file = MUST(open("shared", O_RDWR | O_CREAT | O_TRUNC, 0600));
  MUST(ftruncate(file, 4096));
  // An execution between: the reader has not the mapping that it had as a fork.
  const pid_t reader = slow_reader(ends[0], ends[1], change);
  close(ends[0]);
  char* const mapped = MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags, file, 0));
  CHECK(mapped[0] == 0);
  CHECK(write(ends[1], bytes, kSize) == kSize);
  close(ends[1]);
  wait_for_exit(reader, 0);
  MUST(munmap(mapped, 4096));
  close(file);
}

// Sends SIGWINCH again and again.
static pid_t start_sender(void) {
  const pid_t receiver = getpid(), sender = MUST(fork());
  while (sender == 0) {
    usleep(500);
    if (getppid() != receiver || kill(receiver, SIGWINCH) != 0) _exit(0);
  }
  return sender;
}

static void end_sender(pid_t sender) {
  MUST(kill(sender, SIGKILL));
  MUST(waitpid(sender, NULL, 0));
}

// Reads of what the kernel makes up, and copies of files.
static void without_sleep(void) {
  enum { kMuch = 16 << 20, kRandom = 2 << 20 };
  unsigned char* const much = MUST(mmap(NULL, kMuch, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const pid_t sender = start_sender();
  const int zero = MUST(open("/dev/zero", O_RDONLY)), random = MUST(open("/dev/urandom", O_RDONLY));
  CHECK(read(zero, much, kMuch) == kMuch && pread(zero, much, kMuch, 5) == kMuch);
  struct iovec parts[2] = {{much, kRandom / 2}, {much + kMuch / 2, kRandom / 2}};
  CHECK(readv(random, parts, 2) == kRandom && preadv(random, parts, 2, 0) == kRandom);
  CHECK(getrandom(much, kRandom, 0) == kRandom);
  close(zero), close(random);
  const int from = MUST(memfd_create("from", 0)), to = MUST(memfd_create("to", 0));
  MUST(ftruncate(from, kMuch));
  CHECK(pwrite(from, "end", 3, kMuch - 3) == 3);
  CHECK(sendfile(to, from, NULL, kMuch) == kMuch);
  off_t begin = 0, behind = kMuch;
  CHECK(copy_file_range(from, &begin, to, &behind, kMuch, 0) == kMuch);
  CHECK(begin == kMuch && behind == 2 * kMuch);
  char end[3];
  for (int i = 1; i <= 2; i++) CHECK(pread(to, end, 3, i * kMuch - 3) == 3 && memcmp(end, "end", 3) == 0);
  close(from), close(to);
  end_sender(sender);
  MUST(munmap(much, kMuch));
}

static void handle(int signal) { (void)signal; }

// A handler ends the transfer, with what was written until then, as it does natively.
static void amid_handlers(void) {
  int ends[2];
  MUST(pipe(ends));
  const struct sigaction action = {.sa_handler = handle};
  MUST(sigaction(SIGWINCH, &action, NULL));
  const pid_t sender = start_sender();
  const ssize_t n = write(ends[1], bytes, kSize);
  CHECK(n > 0 && n < kSize);
  signal(SIGWINCH, SIG_DFL);
  end_sender(sender);
  close(ends[0]), close(ends[1]);
}

// A handler ends recvmmsg(2). The kernel keeps that as an error of the socket, and fails the next call with ERESTARTSYS, as if it would
// enter it again; a recording has it entered again.
static void leave_over(void) {
  int ends[2];
  MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
  const struct sigaction action = {.sa_handler = handle};
  MUST(sigaction(SIGUSR1, &action, NULL));
  const pid_t receiver = getpid(), sender = MUST(fork());
  if (sender == 0) {
    CHECK(send(ends[1], bytes, 1, 0) == 1);
    usleep(20000);
    MUST(kill(receiver, SIGUSR1));
    usleep(20000);
    CHECK(send(ends[1], bytes + 1, 1, 0) == 1);
    _exit(0);
  }
  const int received = recvmmsg(ends[0], datagram_headers(got), 2, 0, NULL);
  CHECK(received == 1 || received == 2);  // the signal may have come before the call
  ssize_t n = received == 1 ? recv(ends[0], got + 1, 1, 0) : 1;
  if (n == -1 && errno == 512) n = recv(ends[0], got + 1, 1, 0);
  CHECK(n == 1 && memcmp(got, bytes, 2) == 0);
  wait_for_exit(sender, 0);
  close(ends[0]), close(ends[1]);
}

int main(void) {
  for (size_t i = 0; i < kSize; i++) bytes[i] = (unsigned char)(i * 2654435761u >> 13);
  least_of_socket();
  least_of_terminal();
  amid_signals(by_write, 0);
  amid_signals(by_writev, 0);
  amid_signals(by_pwritev2, 0);
  amid_signals(by_send, 1);
  amid_signals(by_sendmsg, 1);
  amid_signals(by_sendmmsg, 1);
  amid_signals(by_sendfile, 1);
  receive_amid_signals(0);
  receive_amid_signals(1);
  receive_messages_amid_signals(NULL);
  receive_messages_amid_signals(&(struct timespec){3600, 0});
  amid_checkpoints();
  amid_changes(MAP_SHARED, map_too);
  amid_changes(MAP_PRIVATE, write_too);
  without_sleep();
  amid_handlers();
  leave_over();
  return ok("all was transferred");
}
