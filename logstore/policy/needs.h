// Sets of intervals (the papers' replay dependence set, replay set, left frontier): what the policies that piggyback
// them share.
#pragma once

#include <memory>

#include "logstore/policy/policy.h"

namespace redrive {

// The intervals that a unit's current one depends on, itself included.
struct OwnNeeds {
  uint32_t intervals = 0;  // of the unit, so far
  std::shared_ptr<const Needs> set;

  void begin_interval(uint32_t unit) { set = std::make_shared<Needs>(Needs{{unit, intervals++, 0}}); }
};

// The intervals of both, each with as much as either needs of it.
Needs unite(const Needs& a, const Needs& b);
// Whether `a` has all intervals of `b`, and needs as much of them.
bool covers(const Needs& a, const Needs& b);
size_t size_of_union(const Needs& a, const Needs& b);

// Of each unit only the earliest interval; only the earliest and the latest.
void keep_earliest(Needs& needs);
void keep_ends(Needs& needs);

// The most intervals that one unit has in the set; with `whole`, those between its earliest and latest are in it too.
uint32_t multiplicity(const Needs& needs, bool whole);

}  // namespace redrive
