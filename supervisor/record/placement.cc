#include "supervisor/record/placement.h"

#include <algorithm>
#include <string>

#include "base/procfs.h"
#include "supervisor/tier/first_processor.h"

namespace redrive {
namespace {

// A unit computes if it uses this part of what there is for each of those that share its processor, and does not sleep
// more often than that.
constexpr double kComputes = 0.5;
constexpr uint64_t kNsASleep = 1'000'000;
// A unit is moved if the processor that it leaves is in demand by this much more than the one that it goes to will be.
constexpr double kWorthIt = 0.3;
constexpr unsigned kMostDoublings = 6;

}  // namespace

Placement::Placement(unsigned most) {
  CPU_ZERO(&all_);
  CPU_ZERO(&home_);
  CPU_ZERO(&away_);
  const int home = sched_getcpu();
  if (home < 0 || home >= CPU_SETSIZE) return;
  CPU_SET(static_cast<size_t>(home), &home_);
  if (sched_getaffinity(0, sizeof all_, &all_) != 0) return;
  first_ = only(first_processor(all_));
  for (size_t i = 0; i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &all_) || static_cast<int>(i) == home || (most && others_ + 1 >= most)) continue;
    CPU_SET(i, &away_);
    ++others_;
  }
}

Placement::~Placement() {
  if (CPU_COUNT(&all_)) sched_setaffinity(0, sizeof all_, &all_);
}

void Placement::stay_home() const {
  if (CPU_COUNT(&home_)) sched_setaffinity(0, sizeof home_, &home_);
}

void Placement::send(pid_t tid, const Place& place) const {
  const cpu_set_t& to = place.first_until_ns ? first_ : place.away ? away_ : home_;
  if (CPU_COUNT(&to)) sched_setaffinity(tid, sizeof to, &to);
}

size_t Placement::decide(std::vector<UnitUse>& uses, uint64_t elapsed_ns, unsigned others) {
  if (others == 0 || elapsed_ns == 0) return 0;
  const auto share = [&](const UnitUse& use) {
    return std::min(1.0, static_cast<double>(use.cpu_ns) / static_cast<double>(elapsed_ns));
  };
  const auto sleeps_often = [&](const UnitUse& use) {
    return use.sleeps > std::max<uint64_t>(2, elapsed_ns / kNsASleep);
  };
  const auto those_away =
      static_cast<double>(std::count_if(uses.begin(), uses.end(), [](const UnitUse& use) { return use.place->away; }));
  const double processors = others;
  const double crowd_away = std::max(1.0, those_away / processors);
  const double crowd_home = std::max(1.0, static_cast<double>(uses.size()) - those_away);
  // A unit that computes wants a processor of its own, whatever share of one it gets now.
  const auto computes = [&](const UnitUse& use, bool was_away) {
    return share(use) * (was_away ? crowd_away : crowd_home) >= kComputes && !sleeps_often(use);
  };
  double home = 0, away = 0;
  size_t computing = 0;
  const auto move = [&](UnitUse& use) {
    use.moved = true;
    use.place->away = !use.place->away;
  };
  for (UnitUse& use : uses) {
    Place& place = *use.place;
    const bool wants_one = computes(use, place.away);
    computing += wants_one;
    if (place.stays) --place.stays;
    if (place.settles) {
      --place.settles;
    } else if (place.away && sleeps_often(use)) {
      move(use);
      place.stays = 1u << std::min(place.called_back++, kMostDoublings);
    }
    (place.away ? away : home) += wants_one ? 1 : share(use);
  }
  for (UnitUse& use : uses) {
    if (use.moved || !computes(use, use.place->away)) continue;
    if (use.place->away) {
      if (home + 1 + kWorthIt > away / processors) continue;
      move(use), ++home, --away;
    } else if (!use.place->stays) {
      if (std::max(1.0, (away + 1) / processors) + kWorthIt > home) continue;
      move(use), --home, ++away;
    }
  }
  return computing;
}

uint64_t sleeps_of(pid_t tid) { return proc_status(tid).number("voluntary_ctxt_switches"); }

}  // namespace redrive
