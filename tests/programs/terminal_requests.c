// The ioctls of terminals, on a pseudo-terminal, which must decline those of serial lines and virtual consoles.
#include "test.h"

#include <asm/ioctls.h>
#include <asm/termbits.h>
#include <fcntl.h>
#include <linux/kd.h>
#include <linux/serial.h>
#include <linux/vt.h>

int ioctl(int, unsigned long, ...);  // <sys/ioctl.h> and <asm/termbits.h> exclude one another

// As of <asm/termios.h>.
struct old_termios {
  uint16_t flags[4];
  uint8_t line, characters[8];
};

static void modes(int terminal) {
  struct termios mode;
  memset(&mode, 0, sizeof mode);
  MUST(ioctl(terminal, TCGETS, &mode));
  CHECK(mode.c_lflag & ECHO);
  mode.c_lflag &= ~(unsigned)ECHO;
  MUST(ioctl(terminal, TCSETS, &mode));
  MUST(ioctl(terminal, TCSETSW, &mode));
  MUST(ioctl(terminal, TCSETSF, &mode));
  struct termios2 mode2;
  memset(&mode2, 0, sizeof mode2);
  MUST(ioctl(terminal, TCGETS2, &mode2));
  CHECK(!(mode2.c_lflag & ECHO));
  NOTE(mode2);
  MUST(ioctl(terminal, TCSETS2, &mode2));
  MUST(ioctl(terminal, TCSETSW2, &mode2));
  MUST(ioctl(terminal, TCSETSF2, &mode2));
  struct termios locked;
  memset(&locked, 0xff, sizeof locked);
  MUST(ioctl(terminal, TIOCGLCKTRMIOS, &locked));
  CHECK(locked.c_lflag == 0);
  NOTE(locked);
  locked.c_lflag = ECHO;
  if (MAY(ioctl(terminal, TIOCSLCKTRMIOS, &locked), EPERM)) {
    mode.c_lflag |= ECHO;
    MUST(ioctl(terminal, TCSETS, &mode));
    MUST(ioctl(terminal, TCGETS, &mode));
    CHECK(!(mode.c_lflag & ECHO));
    locked.c_lflag = 0;
    MUST(ioctl(terminal, TIOCSLCKTRMIOS, &locked));
  }
  struct old_termios old = {0};
  MUST(ioctl(terminal, TCGETA, &old));
  NOTE(old);
  MUST(ioctl(terminal, TCSETA, &old));
  MUST(ioctl(terminal, TCSETAW, &old));
  MUST(ioctl(terminal, TCSETAF, &old));
  int discipline = 77;
  MUST(ioctl(terminal, TIOCGETD, &discipline));
  CHECK(discipline == 0);
  MUST(ioctl(terminal, TIOCSETD, &discipline));
  int carrier = 77;
  MUST(ioctl(terminal, TIOCGSOFTCAR, &carrier));
  MUST(ioctl(terminal, TIOCSSOFTCAR, &carrier));
  CHECK(carrier == 0 || carrier == 1);
}

static void output_and_input(int master, int terminal) {
  int count = 77;
  MUST(ioctl(terminal, TIOCOUTQ, &count));
  CHECK(count == 0);
  write_all(master, "line\n", 5);
  do {
    MUST(ioctl(terminal, FIONREAD, &count));
  } while (count == 0);
  CHECK(count == 5);
  MUST(ioctl(terminal, TCFLSH, TCIOFLUSH));
  MUST(ioctl(terminal, FIONREAD, &count));
  CHECK(count == 0);
  MUST(ioctl(terminal, TCXONC, TCOOFF));
  MUST(ioctl(terminal, TCXONC, TCOON));
  MUST(ioctl(terminal, TCSBRK, 1));
  MUST(ioctl(terminal, TCSBRKP, 0));
  MAY(ioctl(terminal, TIOCSBRK, 0), ENOTTY);
  MAY(ioctl(terminal, TIOCCBRK, 0), ENOTTY);
}

static void exclusive(int terminal) {
  int is = 77;
  MUST(ioctl(terminal, TIOCEXCL));
  MUST(ioctl(terminal, TIOCGEXCL, &is));
  CHECK(is == 1);
  MUST(ioctl(terminal, TIOCNXCL));
  MUST(ioctl(terminal, TIOCGEXCL, &is));
  CHECK(is == 0);
}

static void of_the_master(int master) {
  int number = 77;
  MUST(ioctl(master, TIOCGPTN, &number));
  CHECK(number >= 0);
  MUST(ioctl(master, TIOCGPTLCK, &number));
  CHECK(number == 0);
  MUST(ioctl(master, TIOCPKT, &(int){1}));
  MUST(ioctl(master, TIOCGPKT, &number));
  CHECK(number == 1);
  MUST(ioctl(master, TIOCPKT, &(int){0}));
  unsigned device = 0;
  MUST(ioctl(master, TIOCGDEV, &device));
  CHECK(device != 0);
  MUST(close(MUST(ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY))));
  MAY(ioctl(master, TIOCSIG, SIGINT));
}

// A session of its own on the terminal, which is given up in the end.
static void session(int terminal) {
  int number = 77;
  MUST(setsid());
  MUST(ioctl(terminal, TIOCSCTTY, 0));
  MUST(ioctl(terminal, TIOCGSID, &number));
  CHECK(number == getpid());
  MUST(ioctl(terminal, TIOCGPGRP, &number));
  CHECK(number == getpid());
  MUST(ioctl(terminal, TIOCSPGRP, &number));
  MAY(ioctl(terminal, TIOCSTI, "x"), EIO);
  signal(SIGHUP, SIG_IGN);
  signal(SIGCONT, SIG_IGN);
  MUST(ioctl(terminal, TIOCNOTTY));
  FAILS(ioctl(terminal, TIOCGPGRP, &number), ENOTTY);
  MAY(ioctl(terminal, TIOCVHANGUP, 0));
  MAY(syscall(SYS_vhangup));  // without a terminal
  _exit(6);
}

static void of_serial_lines(int terminal) {
  int bits = 0;
  struct serial_struct line;
  struct serial_rs485 rs485;
  struct serial_icounter_struct counters;
  memset(&line, 0, sizeof line);
  memset(&rs485, 0, sizeof rs485);
  const int get[] = {TIOCMGET, TIOCMSET, TIOCMBIS, TIOCMBIC};
  for (int i = 0; i < 4; i++) CHECK(ioctl(terminal, (unsigned long)get[i], &bits) == -1 && (errno == ENOTTY || errno == EINVAL));
  FAILS(ioctl(terminal, TIOCMIWAIT, 0), ENOTTY);
  CHECK(ioctl(terminal, TIOCGICOUNT, &counters) == -1);
  FAILS(ioctl(terminal, TIOCGSERIAL, &line), ENOTTY);
  CHECK(ioctl(terminal, TIOCSSERIAL, &line) == -1);
  FAILS(ioctl(terminal, TIOCGRS485, &rs485), ENOTTY);
  FAILS(ioctl(terminal, TIOCSRS485, &rs485), ENOTTY);
}

static void of_consoles(int terminal) {
  char type = 0;
  int number = 0;
  struct vt_mode mode;
  struct vt_stat state;
  memset(&mode, 0, sizeof mode);
  FAILS(ioctl(terminal, KDGKBTYPE, &type), ENOTTY);
  FAILS(ioctl(terminal, KDGETMODE, &number), ENOTTY);
  FAILS(ioctl(terminal, KDSETMODE, KD_TEXT), ENOTTY);
  FAILS(ioctl(terminal, KDGKBMODE, &number), ENOTTY);
  FAILS(ioctl(terminal, KDSKBMODE, K_XLATE), ENOTTY);
  FAILS(ioctl(terminal, VT_OPENQRY, &number), ENOTTY);
  FAILS(ioctl(terminal, VT_GETMODE, &mode), ENOTTY);
  FAILS(ioctl(terminal, VT_SETMODE, &mode), ENOTTY);
  FAILS(ioctl(terminal, VT_GETSTATE, &state), ENOTTY);
  FAILS(ioctl(terminal, VT_RELDISP, 0), ENOTTY);
  FAILS(ioctl(terminal, VT_ACTIVATE, 1), ENOTTY);
  FAILS(ioctl(terminal, VT_WAITACTIVE, 1), ENOTTY);
  struct vt_event event = {.event = VT_EVENT_SWITCH};
  FAILS(ioctl(terminal, VT_WAITEVENT, &event), ENOTTY);
  // Users who may access the machine's console see its present state.
  const int console = open("/dev/tty0", O_RDONLY | O_NOCTTY);
  if (console < 0) return;
  if (ioctl(console, KDGKBTYPE, &type) == 0) NOTE(type);
  if (ioctl(console, KDGETMODE, &number) == 0) NOTE(number);
  if (ioctl(console, KDGKBMODE, &number) == 0) NOTE(number);
  if (ioctl(console, VT_OPENQRY, &number) == 0) NOTE(number);
  if (ioctl(console, VT_GETMODE, &mode) == 0) NOTE(mode);
  if (ioctl(console, VT_GETSTATE, &state) == 0) NOTE(state);
  // Requests without a row.
  struct kbentry entry = {.kb_table = K_NORMTAB, .kb_index = 30};
  struct unipair pairs[512];
  struct unimapdesc map = {.entry_ct = 512, .entries = pairs};
  memset(pairs, 0, sizeof pairs);
  if (ioctl(console, KDGKBENT, &entry) == 0) NOTE(entry);
  if (ioctl(console, KDGETLED, &type) == 0) NOTE(type);
  if (ioctl(console, GIO_UNIMAP, &map) == 0) NOTE(pairs);
  MUST(close(console));
}

int main(void) {
  const int master = MUST(open("/dev/ptmx", O_RDWR | O_NOCTTY));
  MUST(ioctl(master, TIOCSPTLCK, &(int){0}));
  const int terminal = MUST(ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY));
  modes(terminal);
  output_and_input(master, terminal);
  exclusive(terminal);
  of_the_master(master);
  of_serial_lines(terminal);
  of_consoles(terminal);
  const pid_t child = MUST(fork());
  if (child == 0) session(terminal);
  wait_for_exit(child, 6);
  return ok("%016lx", noted);
}
