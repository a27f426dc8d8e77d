// The processors that recorded programs find. Where they run is up to the recorder, but they find what they have asked
// for, and as many processors as there are, or as many as the user says.
#pragma once

#include <sched.h>

#include <array>
#include <cstdint>

#include "base/remote.h"

namespace redrive {

class SeenProcessors {
 public:
  // `there`: those that there are. `count`: how many programs find; 0: these.
  SeenProcessors(const cpu_set_t& there, unsigned count);

  const cpu_set_t& all() const { return all_; }
  // How many, if they are not those that there are; else 0.
  unsigned count() const { return count_; }

  using Arguments = std::array<uint64_t, 6>;
  // The kernel has answered sched_getaffinity(2), of a thread that may run on `its` for all that it sees. Writes that
  // in the place of the kernel's answer, and returns the call's result.
  int64_t get_affinity(const cpu_set_t& its, const Arguments& args, const Memory& memory, int64_t result) const;
  // ... getcpu(2), of a thread that may run on `its`.
  static void get_processor(const cpu_set_t& its, const Arguments& args, const Memory& memory);
  // ... sched_setaffinity(2), with other processors than those that there are: what the kernel says of who may and who
  // is there counts, and not what it says of processors. Changes `its` if the call succeeds, and returns its result.
  int64_t set_affinity(cpu_set_t& its, const Arguments& args, const Memory& memory, int64_t result) const;

 private:
  cpu_set_t all_;
  unsigned count_;
};

}  // namespace redrive
