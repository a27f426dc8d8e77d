// Processes outside the recording that have mapped what recorded ones have mapped shared, so that they can change it:
// nothing reports what they write there.
//
// They are looked for in /proc, on a separate thread, which does not hold up the programs: soon after something was
// mapped, and then from time to time, because processes that share it may come later. Processes of other users cannot
// be looked into without privilege (proc(5)).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace redrive {

using ObjectPlace = std::pair<uint64_t, uint64_t>;  // device, inode

struct OutsideWriter {
  ObjectPlace object;
  pid_t pid = 0;
  std::string command;  // proc_pid_comm(5)
};

// Those that there are now, one for each object. `tracer` and its tracees do not count.
std::vector<OutsideWriter> outside_writers(const std::set<ObjectPlace>& objects, pid_t tracer);

class OutsideWriters {
 public:
  // Something that others may share was mapped.
  void expect();
  // Whether a look is due and none is under way.
  bool due() const;
  void look(std::set<ObjectPlace> objects);
  // What the last look has found, once it has ended.
  std::vector<OutsideWriter> take();

 private:
  using Clock = std::chrono::steady_clock;
  std::future<std::vector<OutsideWriter>> under_way_;
  Clock::duration wait_ = Clock::duration::zero();  // before the next look; zero: nothing to look for
  Clock::time_point next_;
};

}  // namespace redrive
