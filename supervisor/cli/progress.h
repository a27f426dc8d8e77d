// How far a long command is: a line on the terminal that is written over, and gone when the command is over.
#pragma once

#include <string>

#include "base/notice.h"

namespace redrive {

class ProgressLine {
 public:
  // `shown`: standard error is a terminal, and the user sees no other output meanwhile.
  explicit ProgressLine(bool shown) : shown_(shown) {}
  ~ProgressLine() {
    if (shown_) write_error(kCleared);
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // By any thread.
  void show(const std::string& text) const {
    if (shown_) write_error("\r" + text + kToEnd);
  }

 private:
  static constexpr const char* kToEnd = "\033[K";  // clears the rest of the line
  static constexpr const char* kCleared = "\r\033[K";

  const bool shown_;
};

}  // namespace redrive
