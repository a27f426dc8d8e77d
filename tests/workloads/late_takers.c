// Bears N processes, asks who its parent is, and then receives what each of them has sent.
// usage: late_takers N
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 1;
  int ends[2], sum = 0;
  if (pipe(ends) != 0) return 1;
  for (int i = 0; i < count; i++) {
    if (fork() == 0) return write(ends[1], "12345678", 8) != 8;
  }
  (void)getppid();
  for (int i = 0; i < count; i++) {
    char bytes[8];
    for (size_t done = 0; done < sizeof bytes;) {
      const ssize_t n = read(ends[0], bytes + done, sizeof bytes - done);
      if (n <= 0) return 1;
      done += (size_t)n;
    }
    sum += bytes[0] == '1';
  }
  while (wait(NULL) > 0) {
  }
  printf("ok %d\n", sum);
  return sum != count;
}
