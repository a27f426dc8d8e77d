// Sets of intervals (the papers' replay dependence set, replay set, left frontier), used by the policies that piggyback
// them.
#pragma once

#include <memory>

#include "logstore/policy/policy.h"

namespace redrive {

// The intervals that a unit's current interval depends on, including itself.
struct OwnNeeds {
  uint32_t intervals = 0;  // how many the unit has had so far
  std::shared_ptr<const Needs> set;

  void begin_interval(uint32_t unit) { set = std::make_shared<Needs>(Needs{{unit, intervals++, 0}}); }
};

// The intervals of both; of each, as much as either needs.
Needs unite(const Needs& a, const Needs& b);
// Whether `a` has all intervals of `b`, and needs at least as much of each.
bool covers(const Needs& a, const Needs& b);
size_t size_of_union(const Needs& a, const Needs& b);

// Keeps only the earliest interval of each unit, or only the earliest and the latest.
void keep_earliest(Needs& needs);
void keep_ends(Needs& needs);

// The largest number of intervals that one unit has in the set. With `whole`, all intervals between its earliest and
// latest count too.
uint32_t multiplicity(const Needs& needs, bool whole);

}  // namespace redrive
