// Reads the time in a loop, and while there is a file "go" also in the handler of a timer, which runs for most of the time.
// So whoever changes the functions that read the time back meanwhile finds some that are interrupted. Ends when there is a
// file "end".
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <unistd.h>

static long now_us(void) {
  struct timeval now = {0, -1};
  if (gettimeofday(&now, NULL) != 0 || now.tv_usec < 0 || now.tv_usec >= 1000000) _exit(1);
  return now.tv_sec * 1000000L + now.tv_usec;
}

static void handle(int number) {
  (void)number;
  const long began_us = now_us();
  while (now_us() - began_us < 3000) {
  }
}

static void say(const char* what) {
  puts(what);
  fflush(stdout);
}

int main(void) {
  struct sigaction action = {.sa_handler = handle};
  sigaction(SIGALRM, &action, NULL);
  const struct itimerval often = {{0, 4000}, {0, 4000}}, never = {{0, 0}, {0, 0}};
  int interrupted = 0;
  say("ready");
  for (long round = 0; access("end", F_OK) != 0; round++) {
    for (int i = 0; i < 1000; i++) now_us();
    const int go = access("go", F_OK) == 0;
    if (go == interrupted) continue;
    interrupted = go;
    setitimer(ITIMER_REAL, go ? &often : &never, NULL);
    say(go ? "on" : "off");
  }
  say("ok");
}
