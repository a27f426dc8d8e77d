// Another redrive, which this one starts.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace redrive {

struct OwnProcess {
  pid_t pid;
  Fd output, errors;  // pipes: what it writes to standard output and standard error
};

// Starts it with these words, without input, and out of reach of the terminal's signals. It is killed when the calling
// thread ends.
Result<OwnProcess> start_redrive(std::vector<std::string> words, int nice);

// Waits for its end. What it has written to standard output is appended to `output`, and `show` is called with what it
// writes to standard error. Returns its status as waitpid(2) does; -1 if that cannot be known.
int wait_for_redrive(OwnProcess process, std::string& output, const std::function<void(std::string_view)>& show);

}  // namespace redrive
