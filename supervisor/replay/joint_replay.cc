#include "supervisor/replay/joint_replay.h"

#include <algorithm>
#include <thread>

#include "base/mutex.h"
#include "supervisor/replay/watch.h"

namespace redrive {
namespace {

enum class Doing : uint8_t { waits, runs, stands, ended };  // waits: it has not been needed yet

}  // namespace

struct JointReplay::State {
  // One interval, as its thread and the other one see it.
  struct Member final : Halt {
    Member(State& owner, PlannedInterval planned, bool is_shown) : all(owner), what(planned), is_shown(is_shown) {}
    std::optional<EventIndex> next() override {
      const Lock lock(all.mutex);
      return all.stages[index].stop;
    }
    bool shown() const override { return is_shown; }
    Then stand(const StoppedUnit& unit) override;
    void redrive();

    State& all;
    const PlannedInterval what;
    const bool is_shown;
    size_t index = 0;
    int processor = 0;
    EventIndex at = 0;  // its next event, when it does not run; this and what follows: of who lets it go on
    std::thread thread;
  };
  // How far a member is.
  struct Stage {
    Doing doing = Doing::waits;
    std::optional<EventIndex> stop;  // none: its end
    const Look* look = nullptr;      // to be called where it stands
    std::optional<Result<Replayer::Outcome>> outcome;
  };

  State(const SetRun& given, bool verify_shown) : run(given), verify(verify_shown) {}
  bool any(Doing doing) const REQUIRES(mutex) {
    return std::any_of(stages.begin(), stages.end(), [&](const Stage& stage) { return stage.doing == doing; });
  }
  bool any_has_ended() const {
    const Lock lock(mutex);
    return any(Doing::ended);
  }
  // The receives of these happen in the recorded order, up to where they are to stop next.
  Result<void> order(const std::vector<Member*>& chosen);
  // Lets these go on, to where they are to stop next, and waits until all stand or have ended.
  void release(const std::vector<Member*>& chosen);
  void end();

  const SetRun run;
  const bool verify;  // those that are shown
  std::unique_ptr<MessageStore> store;
  std::vector<std::unique_ptr<Member>> members;
  mutable Mutex mutex;
  Condition changed;
  std::vector<Stage> stages GUARDED_BY(mutex);  // of the members
  bool ending GUARDED_BY(mutex) = false;
  std::optional<Watch> watch;
};

Halt::Then JointReplay::State::Member::stand(const StoppedUnit& unit) {
  all.store->interval_stands();
  const Lock lock(all.mutex);
  Stage& stage = all.stages[index];
  stage.doing = Doing::stands;
  all.changed.notify_all();
  while (stage.doing == Doing::stands) {
    if (!stage.look) {
      all.changed.wait(all.mutex);
      continue;
    }
    (*stage.look)(unit);
    stage.look = nullptr;
    all.changed.notify_all();
  }
  return all.ending ? Then::end : Then::go_on;
}

void JointReplay::State::Member::redrive() {
  const SetRun& run = all.run;
  ReplayerOptions how;
  how.verify = all.verify && is_shown;
  how.halt = this;
  Replayer replayer(run.trace, what, birth_of(run.graph.rdg(), what), *all.store, processor, run.tier, how);
  auto result = replayer.run();
  all.store->interval_ended(index, !result || result->divergence);
  const Lock lock(all.mutex);
  all.stages[index].outcome = std::move(result);
  all.stages[index].doing = Doing::ended;
  all.changed.notify_all();
}

Result<void> JointReplay::State::order(const std::vector<Member*>& chosen) {
  if (!run.total_order) return {};
  std::vector<uint64_t> arrivals;
  const Lock lock(mutex);
  for (Member* member : chosen) {
    const EventIndex end = stages[member->index].stop.value_or(member->what.requisite_event);
    ASSIGN_OR_RETURN(const auto its, arrivals_of(run.trace, member->what.unit, member->at, end));
    arrivals.insert(arrivals.end(), its.begin(), its.end());
    member->at = end;
  }
  store->keep_order_of(std::move(arrivals));
  return {};
}

void JointReplay::State::release(const std::vector<Member*>& chosen) {
  store->intervals_go_on(chosen.size());
  const Lock lock(mutex);
  for (Member* member : chosen) {
    const bool starts = std::exchange(stages[member->index].doing, Doing::runs) == Doing::waits;
    if (starts) member->thread = std::thread([member] { member->redrive(); });
  }
  changed.notify_all();
  while (any(Doing::runs)) changed.wait(mutex);
}

void JointReplay::State::end() {
  std::vector<Member*> standing;
  {
    const Lock lock(mutex);
    ending = true;
    for (const auto& member : members) {
      if (stages[member->index].doing == Doing::stands) standing.push_back(member.get());
    }
  }
  release(standing);
}

JointReplay::JointReplay(std::unique_ptr<State> state) : state_(std::move(state)) {}

JointReplay::~JointReplay() {
  state_->end();
  for (const auto& member : state_->members) {
    if (member->thread.joinable()) member->thread.join();
  }
}

Result<std::unique_ptr<JointReplay>> JointReplay::make(const SetRun& run, const Plan& whole, size_t shown,
                                                       bool verify) {
  auto state = std::make_unique<State>(run, verify);
  const std::vector<int> processors = spread(whole.replay_set, run.processors);
  ASSIGN_OR_RETURN(state->store, store_for(run.graph, whole));
  for (const PlannedInterval& planned : whole.replay_set) {
    state->members.push_back(std::make_unique<State::Member>(*state, planned, state->members.size() < shown));
    const size_t index = state->members.size() - 1;
    {
      const Lock lock(state->mutex);
      state->stages.emplace_back();
    }
    state->members[index]->index = index;
    state->members[index]->at = run.trace.intervals(planned.unit).at(planned.start).first_event;
    state->members[index]->processor = processors[index];
    state->store->interval_starts(index, processors[index]);
    state->store->interval_stands();  // until it is needed
  }
  state->watch.emplace(run.processors, [store = state->store.get()] { return store->progress(); });
  return std::unique_ptr<JointReplay>(new JointReplay(std::move(state)));
}

Result<JointReplay::Came> JointReplay::go_to(const Plan& plan) {
  std::vector<State::Member*> chosen;
  for (const PlannedInterval& planned : plan.replay_set) {
    const auto found = std::find_if(state_->members.begin(), state_->members.end(), [&](const auto& member) {
      return member->what.unit == planned.unit && member->what.start == planned.start;
    });
    CHECK(found != state_->members.end() && (*found)->what.requisite_event >= planned.requisite_event);
    const Lock lock(state_->mutex);
    State::Stage& stage = state_->stages[(*found)->index];
    if (stage.doing == Doing::stands && stage.stop == planned.requisite_event) continue;
    stage.stop = planned.requisite_event;
    chosen.push_back(found->get());
  }
  TRY(state_->order(chosen));
  state_->release(chosen);
  if (!state_->any_has_ended()) return Came::all_stand;
  state_->end();
  return Came::all_ended;
}

Result<void> JointReplay::go_on() {
  std::vector<State::Member*> chosen;
  for (const auto& member : state_->members) {
    const Lock lock(state_->mutex);
    State::Stage& stage = state_->stages[member->index];
    if (stage.doing == Doing::ended) continue;
    stage.stop.reset();
    chosen.push_back(member.get());
  }
  TRY(state_->order(chosen));
  state_->release(chosen);
  return {};
}

std::vector<uint64_t> JointReplay::arrivals() const { return state_->store->turns_taken(); }

bool JointReplay::look(size_t index, const Look& look) {
  CHECK(state_->members.at(index)->is_shown);
  const Lock lock(state_->mutex);
  State::Stage& stage = state_->stages[index];
  if (stage.doing != Doing::stands) return false;
  stage.look = &look;
  state_->changed.notify_all();
  while (stage.look) state_->changed.wait(state_->mutex);
  return true;
}

const std::optional<Result<Replayer::Outcome>>& JointReplay::outcome(size_t index) const {
  const Lock lock(state_->mutex);
  return state_->stages.at(index).outcome;
}

}  // namespace redrive
