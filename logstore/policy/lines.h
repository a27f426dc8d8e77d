// Where checkpoints are cheap: lines, at which every unit takes one before its next event, drawn where few bytes are in
// flight (fewest_bytes.cc). Shared by the policies that place checkpoints.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace redrive {

// Lines are numbered from 0 on. In the last quarter of a unit's interval, a line is drawn as soon as there are no more
// bytes in flight than the fewest in the quarter before.
class Lines {
 public:
  uint64_t latest() const { return latest_; }

  void sent(uint64_t bytes) { in_flight_ += static_cast<int64_t>(bytes); }
  void received(uint64_t bytes) {
    in_flight_ -= static_cast<int64_t>(bytes);
    mean_in_flight_ += (static_cast<double>(in_flight_) - mean_in_flight_) / 256;
  }

  // A unit that has passed the latest line is this far in an interval that ends then at the latest.
  void note_place(uint64_t at_ns, uint64_t end_ns) {
    near_ |= at_ns >= end_ns - end_ns / 4;
    if (!near_ && at_ns >= end_ns / 2) fewest_ = std::min(fewest_, in_flight_);
  }

  // Whether a unit may soon be at a good place.
  bool looks_for_place() const { return near_ && asked_ < kMostAsked; }
  // A unit is at an event. Draws a line if this is a good place.
  void ask() {
    if (near_) ++asked_;
    if (near_ && in_flight_ <= few()) draw();
  }
  void draw() {
    ++latest_;
    near_ = false;
    asked_ = 0;
    fewest_ = std::numeric_limits<int64_t>::max();
  }

 private:
  static constexpr unsigned kMostAsked = 256;  // times for a place; after that the line comes with the next checkpoint

  // The number of bytes in flight at which a line is drawn. If that is not reached for long, more will do.
  int64_t few() const {
    const auto most = static_cast<int64_t>(mean_in_flight_ / 4);
    return asked_ < kMostAsked / 2 ? fewest_ : std::max(fewest_, most);
  }

  uint64_t latest_ = 0;
  bool near_ = false;          // a unit is in the last quarter of its interval
  unsigned asked_ = 0;         // how often it was asked since then
  int64_t in_flight_ = 0;      // bytes sent and not received; what is never received does not matter to comparisons
  double mean_in_flight_ = 0;  // recent mean
  int64_t fewest_ = std::numeric_limits<int64_t>::max();  // fewest bytes in flight in the quarter before
};

}  // namespace redrive
