#include "supervisor/record/code/loop_search.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "checkpoint/unit_state.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

// Also of rcx, which a program that makes no call keeps.
uint64_t hash_of(const user_regs_struct& regs) {
  return uint64_t{comparable_registers_hash(regs)} << 32 | static_cast<uint32_t>(regs.rcx);
}

}  // namespace

bool LoopSearch::comes_to(const user_regs_struct& regs, bool is_pause, const std::function<Bytes()>& xstate) {
  if (pause_ && regs.rip == executed_[*pause_]) {
    loop_ = found(*pause_, SiteKind::pausing);
  } else if (repeats(regs, xstate)) {
    loop_ = found(executed_.size() - round_->length, SiteKind::polling);
  }
  if (is_pause && !pause_) pause_ = executed_.size();
  executed_.push_back(regs.rip);
  return loop_.has_value();
}

bool LoopSearch::repeats(const user_regs_struct& regs, const std::function<Bytes()>& xstate) {
  const size_t now = executed_.size();
  const uint64_t hash = hash_of(regs);
  const auto [state, is_new] = states_.try_emplace(hash, now);
  const size_t before = std::exchange(state->second, now);
  if (round_ && now < round_->end) return false;
  if (is_new) {
    round_.reset();
    return false;
  }
  const size_t length = now - before;
  if (round_ && round_->length == length && same_xstate(round_->xstate, xstate())) return true;
  round_ = Round{now + length, length, xstate()};
  return false;
}

LoopSearch::Loop LoopSearch::found(size_t first, SiteKind kind) const {
  const std::vector<Address> round(executed_.begin() + static_cast<std::ptrdiff_t>(first), executed_.end());
  Loop loop{kind, {}};
  std::copy_if(round.begin(), round.end(), std::back_inserter(loop.instructions),
               [&](Address each) { return std::count(round.begin(), round.end(), each) == 1; });
  return loop;
}

LoopSearch::Loop LoopSearch::loop() const {
  if (loop_) return *loop_;
  return pause_ ? Loop{SiteKind::pausing, {executed_[*pause_]}} : Loop{};
}

}  // namespace redrive
