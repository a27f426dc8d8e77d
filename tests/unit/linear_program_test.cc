// The solver behind its interface.
#include "supervisor/evaluation/linear_program.h"

#include "tests/unit/unit_test.h"

namespace redrive::linear_program_test {

TEST_CASE("linear program: it is solved again as columns and rows are added") {
  LinearProgram program = LinearProgram::make().value();
  const uint32_t dear = program.add_column(5), cheap = program.add_column(2);
  const LinearProgram::Term either[] = {{dear, 1}, {cheap, 1}};
  program.add_row(either, 1);
  program.solve(1);
  CHECK_EQ(program.lower_bound(), doctest::Approx(2));
  CHECK_EQ(program.solution(), std::vector<double>{0, 1});

  const uint32_t third = program.add_column(1);
  const LinearProgram::Term more[] = {{dear, 2}, {third, 1}};
  program.add_row(more, 2);  // more than the third column has
  program.solve(1);
  CHECK_EQ(program.solution()[third], doctest::Approx(1));
  CHECK_EQ(program.solution()[dear], doctest::Approx(0.5));
  CHECK_EQ(program.solution()[cheap], doctest::Approx(0.5));
  CHECK_EQ(program.lower_bound(), doctest::Approx(1 + 2.5 + 1));
}

TEST_CASE("linear program: a column holds no more than a whole") {
  LinearProgram program = LinearProgram::make().value();
  const LinearProgram::Term all[] = {{program.add_column(1), 1}, {program.add_column(3), 1}};
  program.add_row(all, 1.5);
  program.solve(1);
  CHECK_EQ(program.lower_bound(), doctest::Approx(1 + 1.5));
}

TEST_CASE("linear program: rows that do not matter may be dropped, and the bound stays") {
  LinearProgram program = LinearProgram::make().value();
  const uint32_t column = program.add_column(4);
  const LinearProgram::Term whole[] = {{column, 1}};
  program.add_row(whole, 0.5);
  program.add_row(whole, 1);
  for (int i = 0; i < 20; ++i) {
    const LinearProgram::Term more[] = {{column, 1}, {program.add_column(7), 1}};
    program.add_row(more, 0.25);
    program.solve(1);
    CHECK_EQ(program.lower_bound(), doctest::Approx(4));
  }
}

}  // namespace redrive::linear_program_test
