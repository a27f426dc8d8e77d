// Whether the record loop's thread runs before the units on its processor. Every stop waits for it, and where many
// units spin, or sleep for moments, the kernel would give it no more of the processor than each of them. It comes first
// only while it is kept from running: a thread that always does interrupts programs more often than their stops need.
//
// Without CAP_SYS_NICE it stays as it is.
#pragma once

#include <cstdint>
#include <functional>

#include "supervisor/record/kernel/tracer.h"

namespace redrive {

class Precedence {
 public:
  // How long a thread has waited, and how its precedence is changed.
  struct Thread {
    std::function<uint64_t()> waited_ns;   // for a processor, so far
    std::function<bool(bool first)> come;  // first, or like others again; false if that is not allowed
  };
  Precedence();  // for the thread that constructs it
  explicit Precedence(Thread thread) : thread_(std::move(thread)) {}
  ~Precedence();
  Precedence(const Precedence&) = delete;
  Precedence& operator=(const Precedence&) = delete;

  // Call it every few milliseconds, from the thread.
  void look(Clock::time_point now);

 private:
  Thread thread_;
  bool first_ = false, refused_ = false;
  Clock::time_point since_{};  // when that was decided
  uint64_t waited_ns_ = 0;     // then
};

}  // namespace redrive
