#include "supervisor/record/placement/placement.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>

#include "base/brief_file.h"
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
// What a sleep costs more between processors (tests/bench/README.md: pipe), and how much that may be of a unit's time.
constexpr double kAwaySleepNs = 20'000;
constexpr double kMostForSleeps = 0.5;

// One decision. Demand is counted in processors: how many units would run now if each had one.
class Decision {
 public:
  Decision(std::vector<UnitUse>& uses, uint64_t elapsed_ns, unsigned others);
  size_t decide();  // returns how many units compute

 private:
  double share(uint64_t ns) const { return std::min(1.0, static_cast<double>(ns) / static_cast<double>(elapsed_ns_)); }
  bool sleeps_often(const UnitUse& use) const { return use.sleeps > std::max<uint64_t>(2, elapsed_ns_ / kNsASleep); }
  // A unit that computes wants a processor of its own, whatever share of one it gets now.
  bool computes(const UnitUse& use, bool was_away) const;
  double needs(const UnitUse& use) const { return computes(use, use.place->away) ? 1 : share(use.cpu_ns); }
  double wants(const UnitUse& use) const;
  double time_away(const UnitUse& use, double away) const;
  bool may_talk_away(const UnitUse& use) const;
  void move(UnitUse& use);
  void call_back();
  void move_those_that_compute();
  void send_those_that_talk();

  std::vector<UnitUse>& uses_;
  uint64_t elapsed_ns_;
  double processors_;  // besides home
  double crowd_home_ = 1, crowd_away_ = 1;
  double home_ = 0, away_ = 0;  // demand, of units that sleep often only as far as it is met
  double wanted_home_ = 0;      // all demand
};

Decision::Decision(std::vector<UnitUse>& uses, uint64_t elapsed_ns, unsigned others)
    : uses_(uses), elapsed_ns_(elapsed_ns), processors_(others) {
  const auto away =
      static_cast<double>(std::count_if(uses.begin(), uses.end(), [](const UnitUse& use) { return use.place->away; }));
  crowd_away_ = std::max(1.0, away / processors_);
  crowd_home_ = std::max(1.0, static_cast<double>(uses.size()) - away);
}

bool Decision::computes(const UnitUse& use, bool was_away) const {
  return share(use.cpu_ns) * (was_away ? crowd_away_ : crowd_home_) >= kComputes && !sleeps_often(use);
}

double Decision::wants(const UnitUse& use) const {
  return computes(use, use.place->away) ? 1 : share(use.cpu_ns + use.waited_ns);
}

// How long the unit takes for what it does if `away` others are away, relative to a processor of its own at home.
double Decision::time_away(const UnitUse& use, double away) const {
  return std::max(1.0, (away + 1) / processors_) +
         kAwaySleepNs * static_cast<double>(use.sleeps) / static_cast<double>(std::max<uint64_t>(use.cpu_ns, 1));
}

// The recorder's other threads need a processor besides home.
bool Decision::may_talk_away(const UnitUse& use) const {
  return processors_ > 1 && time_away(use, 0) <= 1 + kMostForSleeps;
}

void Decision::move(UnitUse& use) {
  const double need = needs(use), want = wants(use);
  use.moved = true;
  use.place->away = !use.place->away;
  const double sign = use.place->away ? -1 : 1;
  home_ += sign * need, away_ -= sign * need, wanted_home_ += sign * want;
}

void Decision::call_back() {
  for (UnitUse& use : uses_) {
    Place& place = *use.place;
    if (place.stays) --place.stays;
    if (place.settles) {
      --place.settles;
    } else if (place.away && sleeps_often(use)) {
      if (may_talk_away(use) && time_away(use, away_ - needs(use)) < wanted_home_ + wants(use)) continue;
      move(use);
      place.stays = 1u << std::min(place.called_back++, kMostDoublings);
    }
  }
}

void Decision::move_those_that_compute() {
  for (UnitUse& use : uses_) {
    if (use.moved || !computes(use, use.place->away)) continue;
    if (use.place->away) {
      if (home_ + 1 + kWorthIt <= away_ / processors_) move(use);
    } else if (!use.place->stays) {
      if (std::max(1.0, (away_ + 1) / processors_) + kWorthIt <= home_) move(use);
    }
  }
}

void Decision::send_those_that_talk() {
  for (UnitUse& use : uses_) {
    if (use.moved || use.place->away || use.place->stays || !sleeps_often(use) || !may_talk_away(use)) continue;
    if (time_away(use, away_) + kWorthIt <= wanted_home_) move(use);
  }
}

size_t Decision::decide() {
  size_t computing = 0;
  for (const UnitUse& use : uses_) {
    computing += computes(use, use.place->away);
    (use.place->away ? away_ : home_) += needs(use);
    if (!use.place->away) wanted_home_ += wants(use);
  }
  call_back();
  move_those_that_compute();
  send_those_that_talk();
  return computing;
}

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
  return Decision(uses, elapsed_ns, others).decide();
}

void give_back_processors(pid_t tid, const cpu_set_t& its) {
  cpu_set_t now{}, everywhere;
  if (!CPU_COUNT(&its) || sched_getaffinity(tid, sizeof now, &now) != 0 || CPU_EQUAL(&now, &its)) return;
  std::memset(&everywhere, 0xff, sizeof everywhere);
  const bool same = sched_setaffinity(tid, sizeof everywhere, &everywhere) == 0 &&
                    sched_getaffinity(tid, sizeof now, &now) == 0 && CPU_EQUAL(&now, &its);
  if (!same) sched_setaffinity(tid, sizeof its, &its);
}

uint64_t sleeps_of(pid_t tid) { return proc_status(tid).number("voluntary_ctxt_switches"); }

uint64_t waited_ns_of(pid_t tid) {
  std::istringstream fields(read_briefly(proc_path(tid, "schedstat")));
  uint64_t ran_ns = 0, waited_ns = 0;
  fields >> ran_ns >> waited_ns;
  return waited_ns;
}

}  // namespace redrive
