// What is known of where a unit runs, between two decisions about it (placement/placement.h).
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace redrive {

struct Place {
  bool away = false;
  uint64_t first_until_ns = 0;  // CPU time of the unit up to which it runs on the first processor; 0: it need not
  // When it was looked at last:
  uint64_t cpu_ns = 0;
  pid_t tid = -1;          // the thread that ran
  uint64_t sleeps = 0;     // of that thread, its stops included
  uint64_t waited_ns = 0;  // of that thread
  // It stays at home for this many looks: twice as many each time that it is called back because of its sleeps.
  unsigned stays = 0;
  unsigned called_back = 0;
  unsigned settles = 0;  // looks for which its stops do not count: it was sent away when its program began

  bool is_home() const { return !away && first_until_ns == 0; }
};

}  // namespace redrive
