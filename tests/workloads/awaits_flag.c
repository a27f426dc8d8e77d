// Says "ready", and computes until the first byte of the file is not 0: somebody outside changes it through a mapping.
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

int main(int argc, char** argv) {
  const int file = argc == 2 ? open(argv[1], O_RDONLY) : -1;
  const volatile char* flag = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
  if (flag == MAP_FAILED) return 1;
  puts("ready");
  fflush(stdout);
  while (!*flag) {
  }
  puts("ok");
  return 0;
}
