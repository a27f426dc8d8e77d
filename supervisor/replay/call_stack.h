// The call stack of a stopped thread, unwound by libunwind(3) from its registers, its process's memory and the files
// that are mapped there. None of these can be trusted: frames() must be run confined (confined.h).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/fd.h"
#include "checkpoint/address_space.h"

namespace redrive {

class CallStack {
 public:
  // Opens what is to be read of a tracee of the calling thread.
  explicit CallStack(pid_t tid);

  // The descriptors that frames() reads.
  std::vector<int> descriptors() const;
  const std::vector<Mapping>& mappings() const { return mappings_; }

  struct Frame {
    Address address = 0;
    std::string function;  // "function+0x8a"; empty where no symbol covers it
  };
  // One frame a line, the innermost first, numbered.
  std::string frames(const std::function<std::string(const Frame&)>& show) const;

 private:
  class Unwinding;

  user_regs_struct regs_{};
  std::vector<Mapping> mappings_;
  Fd memory_;
  std::map<std::string, Fd> files_;  // with code, by the mappings' names
};

// The mapping that shows the beginning of the file; the first one if none does. Null if it is of no file.
const Mapping* first_of_file(const std::vector<Mapping>& mappings, const Mapping& mapping);

}  // namespace redrive
