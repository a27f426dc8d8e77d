// The rows are too many to write down. The program begins without any. Of each solution, those are found that it
// violates, and added; a solution that violates none is the program's. Each solution's cost is a lower bound already.
//
// The solution jumps from corner to corner of what the rows allow, and rows that are violated far out help little. So
// they are searched halfway between the solution and a choice that is known to violate none: that which the policy
// made, at first. If none is found there, that place becomes the known choice (Ben-Ameur and Neto, "Acceleration of
// cutting-plane and column generation algorithms", 2007). Its cost shows how far the bound can still rise.
#include "supervisor/evaluation/lower_bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/thread_clock.h"
#include "base/units.h"
#include "supervisor/evaluation/excess.h"
#include "supervisor/evaluation/linear_program.h"

namespace redrive {
namespace {

using Step = Execution::Step;

constexpr uint32_t kNoColumn = UINT32_MAX;
// Rows of which so much is kept are not violated, and a bound that is so near to the known choice's cost is solved.
constexpr double kNearly = 0.99;
// In a round, paths are searched so often, each time without receives of those that were found.
constexpr int kSearches = 12;

double cpu_time_s() { return seconds(thread_cpu_ns()); }

// What is kept is a whole number. A double's rounding is not to raise it.
uint64_t whole(double bound) { return static_cast<uint64_t>(std::ceil(std::max(bound * (1 - 1e-9) - 1e-6, 0.0))); }

// The rows that limits demand.
class Limits {
 public:
  Limits(const Execution& execution, const Decided& decided, const ReplayLimit& limit)
      : paths_(execution, decided, path_limits_ns(execution, decided, limit)) {
    if (limit.cores) sets_.emplace(execution, decided, work_limits_ns(execution, decided, limit));
  }

  // Some of the rows that the choice violates; none only if there are none.
  std::vector<Excess> find(Choice choice) {
    std::vector<Excess> all;
    if (sets_) all = sets_->find(choice);
    for (int i = 0; i < kSearches; ++i) {
      std::vector<Excess> found = paths_.find(choice);
      if (found.empty()) break;
      for (Excess& excess : found) {
        for (const auto& term : excess.terms) choice[term.receive] = kWhole;
        all.push_back(std::move(excess));
      }
    }
    return all;
  }

 private:
  static std::vector<uint64_t> path_limits_ns(const Execution& execution, const Decided& decided,
                                              const ReplayLimit& limit) {
    std::vector<uint64_t> limits_ns = critical_paths_ns(execution, decided);
    for (uint64_t& limit_ns : limits_ns) limit_ns = std::max(limit_ns, limit.path_ns);
    return limits_ns;
  }

  static std::vector<uint64_t> work_limits_ns(const Execution& execution, const Decided& decided,
                                              const ReplayLimit& limit) {
    Choice choice;
    for (const bool kept : decided.kept) choice.push_back(kept ? kWhole : 0);
    std::vector<uint64_t> limits_ns(decided.intervals.size());
    LargeSets sets(execution, decided, limits_ns);
    for (uint32_t i = 0; i < limits_ns.size(); ++i) {
      limits_ns[i] = std::max(sets.work_ns(i, choice), limit.path_ns * *limit.cores);
    }
    return limits_ns;
  }

  LongPaths paths_;
  std::optional<LargeSets> sets_;
};

// The linear program of one kind of cost.
class Relaxation {
 public:
  using Cost = double (*)(const Step&);

  Relaxation(const Execution& execution, const Decided& decided, Cost cost, LinearProgram program)
      : execution_(execution),
        cost_(cost),
        program_(std::move(program)),
        column_of_(execution.steps.size(), kNoColumn),
        known_(execution.steps.size()) {
    for (size_t i = 0; i < known_.size(); ++i) known_[i] = decided.kept[i] && is_choice(execution.steps[i]) ? 1 : 0;
    decided_cost_ = known_cost();
  }

  // Returns whether it was solved.
  bool solve(Limits& limits, double most_s) {
    const double end_s = cpu_time_s() + most_s;
    for (;;) {
      if (bound() >= whole(decided_cost_) || least_ >= kNearly * known_cost()) return true;
      const double left_s = end_s - cpu_time_s();
      if (left_s <= 0) return false;
      const std::vector<double> solution = solution_by_step();
      std::vector<double> halfway = known_;
      for (size_t i = 0; i < halfway.size(); ++i) halfway[i] = (halfway[i] + solution[i]) / 2;
      std::vector<Excess> found = limits.find(choice_of(halfway));
      if (found.empty()) {
        known_ = std::move(halfway);
        found = limits.find(choice_of(solution));
        if (found.empty()) return true;
      }
      for (const Excess& excess : found) add(excess);
      program_.solve(left_s);
      least_ = std::max(least_, program_.lower_bound());
    }
  }

  uint64_t bound() const { return whole(least_); }

 private:
  double known_cost() const {
    double sum = 0;
    for (size_t i = 0; i < known_.size(); ++i) {
      if (known_[i] > 0) sum += known_[i] * cost_(execution_.steps[i]);
    }
    return sum;
  }

  // Rounded up, so that whatever is found is violated.
  static Choice choice_of(const std::vector<double>& kept) {
    Choice choice;
    for (const double part : kept) {
      choice.push_back(static_cast<uint32_t>(std::ceil(std::min(part / kNearly, 1.0) * kWhole)));
    }
    return choice;
  }

  std::vector<double> solution_by_step() const {
    std::vector<double> kept(column_of_.size());
    const std::vector<double>& solution = program_.solution();
    for (size_t column = 0; column < solution.size(); ++column) kept[receives_[column]] = solution[column];
    return kept;
  }

  void add(const Excess& excess) {
    std::vector<LinearProgram::Term> terms;
    for (const auto& term : excess.terms) {
      uint32_t& column = column_of_[term.receive];
      if (column == kNoColumn) {
        column = program_.add_column(cost_(execution_.steps[term.receive]));
        receives_.push_back(term.receive);
      }
      terms.push_back({column, term.weight});
    }
    program_.add_row(terms, 1);
  }

  const Execution& execution_;
  const Cost cost_;
  LinearProgram program_;
  std::vector<uint32_t> column_of_;  // by step
  std::vector<uint32_t> receives_;   // by column: its step
  std::vector<double> known_;        // by step: what is kept in the choice that violates no row
  double decided_cost_ = 0;
  double least_ = 0;
};

}  // namespace

Result<LowerBound> lower_bound(const Execution& execution, const Decided& decided, const ReplayLimit& limit,
                               double most_s) {
  const Logged logged = count_logged(execution, decided);
  if (logged.messages > kMostBoundedMessages) {
    return Error{fmt::format("{} messages are too many for a lower bound; the most are {}", logged.messages,
                             kMostBoundedMessages)};
  }
  Limits limits(execution, decided, limit);
  LowerBound out{0, 0, true};
  const auto bound = [&](Relaxation::Cost cost, uint64_t& least) -> Result<void> {
    ASSIGN_OR_RETURN(LinearProgram program, LinearProgram::make());
    Relaxation relaxation(execution, decided, cost, std::move(program));
    out.is_solved &= relaxation.solve(limits, most_s);
    least = relaxation.bound();
    return {};
  };
  TRY(bound([](const Step& receive) { return static_cast<double>(receive.bytes); }, out.bytes));
  TRY(bound([](const Step&) { return 1.0; }, out.messages));
  return out;
}

}  // namespace redrive
