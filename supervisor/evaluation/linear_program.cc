#include "supervisor/evaluation/linear_program.h"

#include <coin/Clp_C_Interface.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cfloat>
#include <type_traits>
#include <utility>

#include "base/assert.h"

namespace redrive {
namespace {

constexpr const char* kLibrary = "libClp.so.1";
// A row that did not matter for so many solutions is dropped: most never matter again. Rows are dropped only when the
// bound has risen by this part of it, so that the same rows cannot come and go for ever.
constexpr int kMostIdle = 3;
constexpr double kRise = 1e-4;

// The functions of the library that are used.
struct Clp {
  decltype(&Clp_newModel) new_model;
  decltype(&Clp_deleteModel) delete_model;
  decltype(&Clp_setLogLevel) set_log_level;
  decltype(&Clp_addColumns) add_columns;
  decltype(&Clp_addRows) add_rows;
  decltype(&Clp_deleteRows) delete_rows;
  decltype(&Clp_setMaximumSeconds) set_maximum_seconds;
  decltype(&Clp_dual) dual;
  decltype(&Clp_primalColumnSolution) solution;
  decltype(&Clp_dualRowSolution) multipliers;
};

// Stays loaded: the libraries that it needs have destructors of their own.
Result<Clp> load() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library) return Error{fmt::format("a lower bound needs {} (on Debian: apt install coinor-libclp1)", kLibrary)};
  Clp clp{};
  const auto find = [library](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  const bool complete = find(clp.new_model, "Clp_newModel") && find(clp.delete_model, "Clp_deleteModel") &&
                        find(clp.set_log_level, "Clp_setLogLevel") && find(clp.add_columns, "Clp_addColumns") &&
                        find(clp.add_rows, "Clp_addRows") && find(clp.delete_rows, "Clp_deleteRows") &&
                        find(clp.set_maximum_seconds, "Clp_setMaximumSeconds") && find(clp.dual, "Clp_dual") &&
                        find(clp.solution, "Clp_primalColumnSolution") && find(clp.multipliers, "Clp_dualRowSolution");
  if (!complete) return Error{fmt::format("{} lacks functions that redrive needs", kLibrary)};
  return clp;
}

}  // namespace

struct LinearProgram::State {
  explicit State(const Clp& functions) : clp(functions), model(clp.new_model()) { clp.set_log_level(model, 0); }
  ~State() { clp.delete_model(model); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // What was added since the last solution.
  struct Added {
    std::vector<CoinBigIndex> starts{0};
    std::vector<int> columns;
    std::vector<double> coefficients, demands;
  };

  const Clp clp;
  Clp_Simplex* const model;
  std::vector<double> costs;  // by column
  size_t columns_given = 0;   // how many of them the library has
  Added added;
  struct Row {
    std::vector<Term> terms;
    double demand = 0;
    double multiplier = 0;  // as last solved; at least 0
    int idle = 0;           // how many solutions it did not matter for, without a break
  };
  std::vector<Row> rows;
  std::vector<double> solution;  // by column
  double risen_to = 0;           // the bound when rows were last dropped

  void drop_idle_rows();
};

void LinearProgram::State::drop_idle_rows() {
  std::vector<int> dropped;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].idle > kMostIdle) dropped.push_back(static_cast<int>(i));
  }
  if (dropped.empty()) return;
  clp.delete_rows(model, static_cast<int>(dropped.size()), dropped.data());
  std::erase_if(rows, [](const Row& row) { return row.idle > kMostIdle; });
}

LinearProgram::LinearProgram(std::unique_ptr<State> state) : state_(std::move(state)) {}
LinearProgram::~LinearProgram() = default;
LinearProgram::LinearProgram(LinearProgram&&) noexcept = default;
LinearProgram& LinearProgram::operator=(LinearProgram&&) noexcept = default;

Result<LinearProgram> LinearProgram::make() {
  static const Result<Clp> kClp = load();
  if (!kClp) return kClp.error();
  return LinearProgram(std::make_unique<State>(*kClp));
}

uint32_t LinearProgram::add_column(double cost) {
  state_->costs.push_back(cost);
  return static_cast<uint32_t>(state_->costs.size() - 1);
}

void LinearProgram::add_row(std::span<const Term> terms, double demand) {
  State& state = *state_;
  for (const Term& term : terms) {
    state.added.columns.push_back(static_cast<int>(term.column));
    state.added.coefficients.push_back(term.coefficient);
  }
  state.added.starts.push_back(static_cast<CoinBigIndex>(state.added.columns.size()));
  state.added.demands.push_back(demand);
  state.rows.push_back({{terms.begin(), terms.end()}, demand});
}

void LinearProgram::solve(double most_s) {
  State& state = *state_;
  const Clp& clp = state.clp;
  if (const size_t count = state.costs.size() - state.columns_given; count > 0) {
    const std::vector<double> lower(count, 0), upper(count, 1);
    const std::vector<CoinBigIndex> starts(count + 1, 0);
    const int no_row = 0;
    const double no_element = 0;
    clp.add_columns(state.model, static_cast<int>(count), lower.data(), upper.data(),
                    state.costs.data() + state.columns_given, starts.data(), &no_row, &no_element);
    state.columns_given = state.costs.size();
  }
  if (const State::Added added = std::exchange(state.added, {}); !added.demands.empty()) {
    const std::vector<double> upper(added.demands.size(), DBL_MAX);
    clp.add_rows(state.model, static_cast<int>(added.demands.size()), added.demands.data(), upper.data(),
                 added.starts.data(), added.columns.data(), added.coefficients.data());
  }
  clp.set_maximum_seconds(state.model, most_s);
  clp.dual(state.model, 0);
  const double* const solution = clp.solution(state.model);
  const double* const multipliers = clp.multipliers(state.model);
  state.solution.assign(solution, solution + state.costs.size());
  for (double& x : state.solution) x = std::clamp(x, 0.0, 1.0);
  for (size_t i = 0; i < state.rows.size(); ++i) {
    State::Row& row = state.rows[i];
    row.multiplier = std::max(multipliers[i], 0.0);
    row.idle = row.multiplier > 0 ? 0 : row.idle + 1;
  }
  if (const double bound = lower_bound(); bound > state.risen_to * (1 + kRise)) {
    state.risen_to = bound;
    state.drop_idle_rows();
  }
}

const std::vector<double>& LinearProgram::solution() const { return state_->solution; }

// For any multipliers y >= 0 and any x that the rows allow, cost * x >= cost * x - sum of y * (row * x - demand): the
// sum of y * demand and, for each column, x * (cost - sum of y * coefficient), which is least with x = 0 or x = 1.
double LinearProgram::lower_bound() const {
  const State& state = *state_;
  std::vector<double> reduced = state.costs;
  double sum = 0;
  for (const State::Row& row : state.rows) {
    sum += row.multiplier * row.demand;
    if (row.multiplier == 0) continue;
    for (const Term& term : row.terms) reduced[term.column] -= row.multiplier * term.coefficient;
  }
  for (const double cost : reduced) sum += std::min(cost, 0.0);
  return std::max(sum, 0.0);
}

}  // namespace redrive
