// Bears N processes, one after the other, each of which sends it a byte and ends.
// usage: births N
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 1;
  int ends[2], sum = 0;
  if (pipe(ends) != 0) return 1;
  for (int i = 0; i < count; i++) {
    const pid_t child = fork();
    if (child == 0) return write(ends[1], "x", 1) != 1;
    char byte = 0;
    int status = 0;
    if (read(ends[0], &byte, 1) != 1 || waitpid(child, &status, 0) != child) return 1;
    sum += byte == 'x' && status == 0;
  }
  printf("ok %d\n", sum);
  return sum != count;
}
