// Compares the end of an interval with the checkpoint that follows, or with what the recorder has noted where a program
// ended (DESIGN.md, Verification).
#pragma once

#include <string>
#include <variant>

#include "supervisor/replay/redriving.h"

namespace redrive {

// How it went.
struct Verified {};
struct Unverified {
  std::string why;  // it could not be compared
};
using Verification = std::variant<Verified, Unverified, Difference>;

// Why intervals that cannot be executed, or whose next checkpoint has no image, are not verified.
inline constexpr const char* kUnreachable = "the recorder did not write what leads to it";
inline constexpr const char* kNoImageAtEnd = "the image of the checkpoint at its end is not stored";

class EndVerification {
 public:
  explicit EndVerification(const Redriving& redriving) : redriving_(redriving) {}

  // Before an event that ends the program: compares with what the recorder has noted there, if that is where the
  // interval ends.
  Result<Step> before_last(const RedrivenThread& thread, EventIndex index, const user_regs_struct& regs);
  // After the last event: compares all registers, and every page that either side holds.
  Result<Verification> at_end() const;

 private:
  Result<Verification> compare_threads(const UnitState& expected) const;
  Result<Verification> compare_memory(const Image& image, const UnitState& expected) const;

  const Redriving& redriving_;
  bool equal_before_last_ = false;  // the last event ends its program
};

}  // namespace redrive
