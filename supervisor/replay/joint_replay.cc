#include "supervisor/replay/joint_replay.h"

#include <algorithm>

#include "base/assert.h"

namespace redrive {

Result<std::unique_ptr<JointReplay>> JointReplay::make(const SetRun& run, const Plan& whole, size_t shown,
                                                       bool verify) {
  std::unique_ptr<JointReplay> replay(new JointReplay(run));
  const std::vector<int> processors = spread(whole.replay_set, run.processors);
  ASSIGN_OR_RETURN(auto store, store_for(run.graph, whole));
  std::vector<ReplaySession::Piece> pieces;
  for (const PlannedInterval& planned : whole.replay_set) {
    const size_t index = pieces.size();
    ReplaySession::Piece& piece = pieces.emplace_back();
    piece.what = planned;
    piece.birth = birth_of(run.graph.rdg(), planned);
    piece.shown = index < shown;
    piece.how.verify = verify && piece.shown;
    piece.processor = processors[index];
    replay->at_.push_back(run.trace.intervals(planned.unit).at(planned.start).first_event);
  }
  replay->outcomes_.resize(pieces.size());
  auto execute = replayers(run, *store);
  const auto keep = [all = replay.get()](size_t index, const auto& outcome) { all->outcomes_[index] = outcome; };
  replay->session_ = std::make_unique<ReplaySession>(std::move(pieces), std::move(store), run.processors,
                                                     std::move(execute), ReplaySession::Notes{{}, {}, keep});
  return replay;
}

// The receives on the way to these goals happen in the recorded order.
Result<void> JointReplay::order(const std::vector<ReplaySession::Goal>& goals) {
  if (!run_.total_order) return {};
  std::vector<uint64_t> arrivals;
  for (const auto& [piece, stop] : goals) {
    const PlannedInterval& what = session_->pieces()[piece].what;
    const EventIndex end = stop.value_or(what.requisite_event);
    ASSIGN_OR_RETURN(const auto its, arrivals_of(run_.trace, what.unit, at_[piece], end));
    arrivals.insert(arrivals.end(), its.begin(), its.end());
    at_[piece] = end;
  }
  session_->store().keep_order_of(std::move(arrivals));
  return {};
}

Result<JointReplay::Came> JointReplay::go_to(const Plan& plan) {
  const auto& pieces = session_->pieces();
  std::vector<ReplaySession::Goal> goals;
  for (const PlannedInterval& planned : plan.replay_set) {
    const auto found = std::find_if(pieces.begin(), pieces.end(), [&](const auto& piece) {
      return piece.what.unit == planned.unit && piece.what.start == planned.start;
    });
    ASSERT(found != pieces.end() && found->what.requisite_event >= planned.requisite_event);
    const auto index = static_cast<size_t>(found - pieces.begin());
    if (!session_->stands_at(index, planned.requisite_event)) goals.push_back({index, planned.requisite_event});
  }
  TRY(order(goals));
  session_->go(goals);
  TRY(used_copies_are_good(run_.trace));
  if (!session_->any_has_ended()) return Came::all_stand;
  session_->end_all();
  return Came::all_ended;
}

Result<void> JointReplay::go_on() {
  std::vector<ReplaySession::Goal> goals;
  for (size_t i = 0; i < session_->pieces().size(); ++i) {
    if (!session_->has_ended(i)) goals.push_back({i, std::nullopt});
  }
  TRY(order(goals));
  session_->go(goals);
  return {};
}

}  // namespace redrive
