// The program break, moved by hand and by malloc.
#include "test.h"

#include <malloc.h>

int main(void) {
  char* start = (char*)sbrk(0);
  MUST(sbrk(1 << 20));
  fill(start, 1 << 20, 4);
  pass_checkpoints();
  CHECK((char*)sbrk(0) == start + (1 << 20) && is_filled(start, 1 << 20, 4));
  MUST(sbrk(-(1 << 19)));
  CHECK((char*)sbrk(0) == start + (1 << 19) && is_filled(start, 1 << 19, 4));
  MUST(sbrk(1 << 19));
  CHECK(start[(1 << 20) - 1] == 0);  // it was given back and mapped again: zeros

  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  char* blocks[200];
  for (int i = 0; i < 200; i++) CHECK((blocks[i] = (char*)malloc(10000 + 100 * (size_t)i))), fill(blocks[i], 10000, (unsigned)i);
  for (int i = 0; i < 200; i += 2) free(blocks[i]);
  pass_checkpoints();
  for (int i = 1; i < 200; i += 2) CHECK(is_filled(blocks[i], 10000, (unsigned)i)), free(blocks[i]);
  malloc_trim(0);
  return ok("break %p", (void*)start);
}
