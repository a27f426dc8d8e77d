// record --self-check: another redrive re-drives the trace while it is recorded, and once more as a whole at the end.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>
#include <thread>

#include "base/result.h"

namespace redrive {

struct SelfChecked {
  uint64_t intervals = 0;    // of the trace, all re-driven
  uint64_t compared = 0;     // whose ends were compared with the state that was recorded
  uint64_t followed = 0;     // re-driven while the trace was recorded
  uint64_t divergences = 0;  // then or at the end; they have been shown on standard error
};

class SelfCheck {
 public:
  // Starts it, with a lower priority than what is recorded, and out of reach of the terminal's signals. `directory`: of
  // the trace.
  SelfCheck(const std::string& directory, bool in_process);
  ~SelfCheck();  // ends it if it has not ended
  SelfCheck(const SelfCheck&) = delete;
  SelfCheck& operator=(const SelfCheck&) = delete;

  // Waits for its end, which follows the end of the recording. An Error says why not all could be re-driven.
  Result<SelfChecked> finish();

 private:
  void run(const std::string& directory, bool in_process);

  std::atomic<pid_t> process_ = -1;
  std::string said_;  // its standard output
  int status_ = -1;   // as waitpid(2) says; -1: it could not be started
  std::thread thread_;
};

}  // namespace redrive
