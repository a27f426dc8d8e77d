#include "logstore/policy/needs.h"

#include <algorithm>

namespace redrive {
namespace {

uint64_t key(const Need& need) { return uint64_t{need.unit} << 32 | need.interval; }

// Calls visit(first, last) for the stretch of each unit.
template <typename Set, typename Visit>
void for_each_unit(Set& needs, Visit visit) {
  for (auto first = needs.begin(); first != needs.end();) {
    const auto last = std::find_if(first, needs.end(), [&](const Need& need) { return need.unit != first->unit; });
    visit(first, last);
    first = last;
  }
}

}  // namespace

Needs unite(const Needs& a, const Needs& b) {
  Needs out;
  out.reserve(a.size() + b.size());
  auto x = a.begin(), y = b.begin();
  while (x != a.end() && y != b.end()) {
    if (key(*x) == key(*y)) {
      out.push_back(*x);
      out.back().cpu_ns = std::max(x++->cpu_ns, y++->cpu_ns);
    } else {
      out.push_back(key(*x) < key(*y) ? *x++ : *y++);
    }
  }
  out.insert(out.end(), x, a.end());
  out.insert(out.end(), y, b.end());
  return out;
}

bool covers(const Needs& a, const Needs& b) {
  auto x = a.begin();
  for (const Need& wanted : b) {
    while (x != a.end() && key(*x) < key(wanted)) ++x;
    if (x == a.end() || key(*x) != key(wanted) || x->cpu_ns < wanted.cpu_ns) return false;
  }
  return true;
}

size_t size_of_union(const Needs& a, const Needs& b) {
  size_t both = 0;
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    const uint64_t left = key(*x), right = key(*y);
    both += left == right;
    x += left <= right;
    y += right <= left;
  }
  return a.size() + b.size() - both;
}

void keep_earliest(Needs& needs) {
  needs.erase(std::unique(needs.begin(), needs.end(), [](const Need& a, const Need& b) { return a.unit == b.unit; }),
              needs.end());
}

void keep_ends(Needs& needs) {
  auto end = needs.begin();
  for_each_unit(needs, [&](auto first, auto last) {
    const Need latest = *(last - 1);
    const bool several = last - first > 1;
    *end++ = *first;
    if (several) *end++ = latest;
  });
  needs.erase(end, needs.end());
}

uint32_t multiplicity(const Needs& needs, bool whole) {
  uint32_t most = 0;
  for_each_unit(needs, [&](auto first, auto last) {
    const uint32_t count = whole ? (last - 1)->interval - first->interval + 1 : static_cast<uint32_t>(last - first);
    most = std::max(most, count);
  });
  return most;
}

}  // namespace redrive
