// The processors that recorded programs find. The recorder decides where programs run, but they find the processors
// that they have asked for, and as many as there are or as the user has said.
#pragma once

#include <sched.h>

#include <array>
#include <cstdint>

#include "base/remote.h"

namespace redrive {

class SeenProcessors {
 public:
  // `there`: the processors that there are. `count`: how many programs find; 0: these.
  SeenProcessors(const cpu_set_t& there, unsigned count);

  const cpu_set_t& all() const { return all_; }
  // How many programs find, if the user has said that; otherwise 0.
  unsigned count() const { return count_; }

  using Arguments = std::array<uint64_t, 6>;
  // Call this when the kernel has answered sched_getaffinity(2) with this result. Writes `its`, the processors of the
  // thread as programs see them, over the kernel's answer, and returns the call's new result.
  int64_t get_affinity(const cpu_set_t& its, const Arguments& args, const Memory& memory, int64_t result) const;
  // The same for getcpu(2). Does nothing if the kernel has answered with one of `its`.
  static void get_processor(const cpu_set_t& its, const Arguments& args, const Memory& memory);
  // Call this when the kernel has answered sched_setaffinity(2), if count() is not 0. The kernel's answer counts where
  // it is about permission or the thread, and not where it is about processors. Changes `its` if the call succeeds, and
  // returns the call's new result.
  int64_t set_affinity(cpu_set_t& its, const Arguments& args, const Memory& memory, int64_t result) const;

 private:
  cpu_set_t all_;
  unsigned count_;
};

}  // namespace redrive
