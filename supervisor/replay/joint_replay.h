// A replay set whose intervals stop on their way, all at a distributed breakpoint, are looked at there, and go on.
//
// Every interval has a thread that re-drives it. The object is used by one other thread, for which all of them stand
// still whenever a function returns.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "supervisor/replay/replay_set.h"
#include "supervisor/replay/stopped_unit.h"

namespace redrive {

class JointReplay {
 public:
  // `whole`: all that will ever be executed. Its first `shown` intervals are those to look at;
  // `verify`: and to verify, when they have come to their ends.
  static Result<std::unique_ptr<JointReplay>> make(const SetRun& run, const Plan& whole, size_t shown, bool verify);
  ~JointReplay();  // ends all where they stand
  JointReplay(const JointReplay&) = delete;
  JointReplay& operator=(const JointReplay&) = delete;

  // Executes until each interval of `plan` stands behind its requisite event; a part of the whole, not smaller than
  // what was executed before. If one fails or diverges, all end. With total_order the receives
  // between two such places happen in the recorded order: a place is no point of that order, but one of causality. An
  // error: the trace cannot be read.
  enum class Came : uint8_t { all_stand, all_ended };
  Result<Came> go_to(const Plan& plan);
  // Executes the whole to its end.
  Result<void> go_on();

  // Numbers of receives that have happened, in their order; only with total_order.
  std::vector<uint64_t> arrivals() const;

  // Looks at a shown interval where it stands, in the thread that traces it. False if it has ended.
  using Look = std::function<void(const StoppedUnit&)>;
  bool look(size_t index, const Look& look);

  // Of an interval of the whole that has ended. None: it was not needed yet, or stands.
  const std::optional<Result<Replayer::Outcome>>& outcome(size_t index) const;

 private:
  struct State;
  explicit JointReplay(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace redrive
