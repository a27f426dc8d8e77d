// Calls whose results are the numbers of system calls that are not shown to filters (335 and 336, uprobe's), while signals come.
#include "test.h"

#include <fcntl.h>
#include <sys/time.h>

static volatile sig_atomic_t alarms;
static void on_alarm(int signal) {
  (void)signal;
  alarms = alarms + 1;
}

int main(void) {
  const int zeros = MUST(open("/dev/zero", O_RDONLY));
  const struct sigaction caught = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
  MUST(sigaction(SIGALRM, &caught, NULL));
  const struct itimerval often = {{0, 500}, {0, 500}};
  MUST(setitimer(ITIMER_REAL, &often, NULL));
  char bytes[336];
  long reads = 0;
  while (alarms < 200) {
    const size_t size = 335 + (size_t)(reads++ & 1);
    memset(bytes, 1, sizeof bytes);
    CHECK(read(zeros, bytes, size) == (ssize_t)size);
    for (size_t i = 0; i < sizeof bytes; i++) CHECK(bytes[i] == (i >= size));
  }
  const struct itimerval never = {{0, 0}, {0, 0}};
  MUST(setitimer(ITIMER_REAL, &never, NULL));
  return ok("%s", reads > 200 ? "read often" : "read seldom");
}
