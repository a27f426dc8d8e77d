// Writes where the recorder keeps what it shares with programs (interceptors/inprocess/layout.h), in ways that a stray pointer could.
// usage: wild_writer head|records|descriptors NUMBER|nothing
// `descriptors`: says of pipes that it makes that they have this number.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "interceptors/inprocess/layout.h"

using namespace redrive::gate;

// The last records are those of pipe2(2), with what it has written: two descriptors.
static void forge_descriptors(int number) {
  int ends[2] = {};
  for (int i = 0; i < 30; i++) {
    if (pipe2(ends, 0) != 0) return;
    auto* const words = reinterpret_cast<int*>(kRing);
    const auto filled = reinterpret_cast<volatile uint64_t*>(kSlot + offsetof(Slot, head));
    for (uint64_t at = 0; at + 1 < *filled / sizeof(int); ++at) {
      if (words[at] == ends[0] && words[at + 1] == ends[1]) words[at] = words[at + 1] = number;
    }
    close(ends[0]), close(ends[1]);
  }
}

// No call that was served was made at all.
static void forge_counts() {
  const auto filled = *reinterpret_cast<volatile uint64_t*>(kSlot + offsetof(Slot, head));
  for (uint64_t at = 0; at + sizeof(Record) <= filled;) {
    auto* const record = reinterpret_cast<Record*>(kRing + at);
    record->repeat = 0;
    if (record->size == 0) return;
    at += record->size;
  }
}

int main(int argc, char** argv) {
  long sum = 0;
  for (int i = 0; i < 50; i++) sum += syscall(SYS_getppid);
  if (argc > 1 && strcmp(argv[1], "head") == 0) {
    *reinterpret_cast<volatile uint64_t*>(kSlot + offsetof(Slot, head)) = UINT64_MAX / 3;
  } else if (argc > 2 && strcmp(argv[1], "descriptors") == 0) {
    forge_descriptors(atoi(argv[2]));
  } else if (argc > 1 && strcmp(argv[1], "nothing") == 0) {
    forge_counts();
  } else {
    memset(reinterpret_cast<void*>(kRing), 0xff, 65536);
  }
  for (int i = 0; i < 50; i++) sum += syscall(SYS_getppid);
  printf("ok %d\n", sum != 0);
  return 0;
}
