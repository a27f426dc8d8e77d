// Up to where a re-driven unit does what was recorded.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "logstore/event.h"

namespace redrive {

// Where the execution is not what was recorded.
struct Difference {
  EventIndex event = 0;
  std::optional<ThreadSerial> thread;  // whose stack and code belong to the report
  std::string expected;
  std::string found;
};

// What was executed: as recorded, or up to the first difference.
class [[nodiscard]] Step {
 public:
  static Step as_recorded() { return Step(nullptr); }
  static Step diverged(Difference difference) {
    return Step(std::make_unique<const Difference>(std::move(difference)));
  }

  bool has_diverged() const { return difference_ != nullptr; }
  const Difference& difference() const { return *difference_; }  // of one that has diverged

 private:
  explicit Step(std::unique_ptr<const Difference> difference) : difference_(std::move(difference)) {}

  std::unique_ptr<const Difference> difference_;  // held apart: there is a step for every event
};

// TRY_STEP(expr): returns the error or the difference of a Result<Step> from the enclosing function.
#define TRY_STEP(expr)                                                      \
  do {                                                                      \
    if (auto tried = (expr); !tried || tried->has_diverged()) return tried; \
  } while (0)

}  // namespace redrive
