// A covering linear program: the least sum of cost * x with 0 <= x <= 1, so that each row's sum of coefficient * x is
// at least what the row demands. Columns and rows are added between solutions, each of which starts from the one
// before.
//
// It is solved by Clp. That library and those that it needs take longer to load than redrive takes to start, so they
// are loaded when the first program is made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"

namespace redrive {

class LinearProgram {
 public:
  static Result<LinearProgram> make();  // fails if the library is not installed
  ~LinearProgram();
  LinearProgram(LinearProgram&&) noexcept;
  LinearProgram& operator=(LinearProgram&&) noexcept;

  struct Term {
    uint32_t column = 0;
    double coefficient = 0;  // at least 0
  };
  uint32_t add_column(double cost);  // at least 0; returns its number, from 0
  void add_row(std::span<const Term> terms, double demand);

  // Solves it with what was added. The solver gives up after about that CPU time.
  void solve(double most_s);
  // By column that there was when it was last solved, from 0 to 1.
  const std::vector<double>& solution() const;
  // A lower bound of the least sum. It is computed from the rows' multipliers alone, and holds whatever they are: a
  // solver that gives up or is inaccurate makes it smaller, not wrong.
  double lower_bound() const;

 private:
  struct State;
  explicit LinearProgram(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace redrive
