// What is taken from intervals while they are re-driven: the third phase of `prepare`.
#pragma once

#include "logstore/trace.h"

namespace redrive {

// Called by many threads.
class Preparation {
 public:
  virtual ~Preparation() = default;
  // Whether an image is to be made of the checkpoint that the interval begins with.
  virtual bool wants_image(UnitId unit, IntervalIndex interval) const = 0;
  virtual Result<void> add_image(UnitId unit, IntervalIndex interval, const ReadImage& read) = 0;
  virtual bool wants_payload(EventRef receiver) const = 0;
  virtual Result<void> add_payload(EventRef receiver, const Bytes& payload) = 0;
};

}  // namespace redrive
