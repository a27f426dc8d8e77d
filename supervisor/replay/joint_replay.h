// A replay set whose intervals stop on their way, all at a distributed breakpoint, are looked at there, and go on.
//
// The intervals in which the units stand are planned together, once up to their places and once to their ends. Those
// that only the second set needs start when the units go on. While some units stand, a wait for what only they can send
// fails as if they had ended.
//
// All of them stand still whenever a function returns.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "supervisor/replay/replay_set.h"

namespace redrive {

class JointReplay {
 public:
  // `whole`: all that will ever be executed. Its first `shown` intervals are those to look at;
  // `verify`: and to verify, when they have come to their ends.
  static Result<std::unique_ptr<JointReplay>> make(const SetRun& run, const Plan& whole, size_t shown, bool verify);

  // Executes until each interval of `plan` stands after its requisite event. `plan` is a part of the whole, and not
  // smaller than what was executed before. If one fails or diverges, all end. With total_order the receives between two
  // such places happen in the recorded order: a place is not a point of that order, but one of causality. An error: the
  // trace cannot be read.
  enum class Came : uint8_t { all_stand, all_ended };
  Result<Came> go_to(const Plan& plan);
  // Executes the whole to its end.
  Result<void> go_on();

  // Numbers of receives that have happened, in their order; only with total_order.
  std::vector<uint64_t> arrivals() { return session_->store().turns_taken(); }

  // Looks at a shown interval where it stands, in the thread that traces it. False if it has ended.
  bool look(size_t index, const ReplaySession::Look& look) { return session_->look(index, look); }

  // The outcome of an interval of the whole that has ended. None: it was not needed yet, or stands.
  const std::optional<ReplaySession::Outcome>& outcome(size_t index) const { return outcomes_.at(index); }

 private:
  explicit JointReplay(const SetRun& run) : run_(run) {}
  Result<void> order(const std::vector<ReplaySession::Goal>& goals);

  const SetRun run_;
  std::vector<EventIndex> at_;  // the next events of the intervals, where they stand or will
  std::vector<std::optional<ReplaySession::Outcome>> outcomes_;
  std::unique_ptr<ReplaySession> session_;  // the last member: its threads use the others
};

}  // namespace redrive
