// A pseudo-terminal: a shell-like child with a controlling terminal, echo, line editing, window size, ^C as a signal.
#include "test.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>

static volatile sig_atomic_t interrupts;
static void count(int signal) { interrupts += signal == SIGINT; }

static void terminal_child(int terminal) {
  char line[100];
  struct winsize size;
  MUST(setsid());
  MUST(ioctl(terminal, TIOCSCTTY, 0));
  MUST(sigaction(SIGINT, &(struct sigaction){.sa_handler = count}, NULL));
  CHECK(isatty(terminal) && ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col == 77);
  write_all(terminal, "ready\n", 6);
  const ssize_t n = MUST(read(terminal, line, sizeof line));
  CHECK(n == 6 && memcmp(line, "hallo\n", 6) == 0);  // the erased character is gone
  sigset_t before;
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGINT);
  MUST(sigprocmask(SIG_BLOCK, &blocked, &before));
  write_all(terminal, "again\n", 6);
  // The signal comes while this waits; if it came earlier, a read would wait for ever.
  while (!interrupts) CHECK(ppoll(&(struct pollfd){terminal, POLLIN, 0}, 1, NULL, &before) == -1 && errno == EINTR);
  MUST(sigprocmask(SIG_SETMASK, &before, NULL));
  write_all(terminal, "interrupted\n", 12);
  CHECK(read(terminal, line, sizeof line) == 0);  // ^D
  _exit(3);
}

// Reads from the master until the text has arrived.
static void expect(int master, const char* wanted) {
  char text[400];
  size_t length = 0;
  do {
    CHECK(length < sizeof text - 1 && read(master, text + length, 1) == 1);
    text[++length] = 0;
  } while (!strstr(text, wanted));
}

int main(void) {
  const int master = MUST(posix_openpt(O_RDWR | O_NOCTTY));
  MUST(grantpt(master));
  MUST(unlockpt(master));
  MUST(ioctl(master, TIOCSWINSZ, &(struct winsize){.ws_row = 30, .ws_col = 77}));
  const int terminal = MUST(open(ptsname(master), O_RDWR | O_NOCTTY));
  const pid_t child = MUST(fork());
  if (child == 0) {
    MUST(close(master));
    terminal_child(terminal);
  }
  expect(master, "ready\r\n");
  write_all(master, "hallx\177o\n", 8);
  expect(master, "again\r\n");
  write_all(master, "\003", 1);
  expect(master, "interrupted\r\n");
  write_all(master, "\004", 1);
  wait_for_exit(child, 3);

  struct termios mode;
  MUST(tcgetattr(terminal, &mode));
  cfmakeraw(&mode);
  MUST(tcsetattr(terminal, TCSANOW, &mode));
  write_all(master, "\003raw", 4);
  char text[4];
  read_all(terminal, text, 4);
  CHECK(memcmp(text, "\003raw", 4) == 0);
  return ok("%s", ptsname(master));
}
