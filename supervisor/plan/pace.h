// How long replays take on this host, from some that were measured.
//
// All costs are found together, by a linear program. One after the other, each from the replays that have little else,
// would not do: the shortest replay of a program may execute four intervals, and with a bound of a second a third was
// lost to what was taken for beginning.
#pragma once

#include <cstdint>
#include <vector>

#include "logstore/certificate.h"

namespace redrive {

struct MeasuredReplay {
  double starts = 0;       // how many times of starting an interval are in it (starts() in certificate.h)
  double messages = 0;     // between its intervals
  double executing_s = 0;  // as recorded
  double restoring_s = 0;  // as assumed
  double seconds = 0;      // measured; more than 0
};

// The pace, of at least kLeastPace, at which none of the replays takes longer than predicted, and what is predicted of
// them is as little as possible: the sum of predicted_s / seconds. `least` and `most` are by how much they differ from
// it.
Pace fit_pace(const std::vector<MeasuredReplay>& measured);

// What makes the measured replays fast need not make others fast, which may be much longer: what they take can often be
// divided between messages and executing in several ways. Where all that were measured have as many messages for each
// second, all of it could be put on the messages, and what has fewer would be predicted too short.
inline constexpr double kLeastPace = 1;

// Those of which the pace can be found: the shortest, the longest, and those that are least like these. Their times
// must have been predicted at a pace of 1. Only replays that are short are chosen, and the most important ones come
// first.
std::vector<PredictedReplay> worth_measuring(std::vector<PredictedReplay> replays, uint32_t jobs);

}  // namespace redrive
