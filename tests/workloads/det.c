// The determinant of a dense matrix by Gauss's elimination with pivoting; rows are dealt out to MPI ranks.
// usage: det SIZE MATRICES
// In each step all ranks agree on the row with the largest number in the column (MPI_MAXLOC); its owner sends it to all
// others. Checked: the determinant is the one for which the matrix was made: two reflections times a diagonal, rows
// in disorder.
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

// Logarithm and sign, because the product of all pivots may be out of range.
struct Determinant {
  double logarithm;
  int sign;
};

// A matrix with a known determinant: (1 - 2 v v') diagonal (1 - 2 w w'), with rows in another order. Each reflection has determinant
// -1.
struct Recipe {
  double *v, *w, *diagonal;
  double *diagonal_v, *diagonal_w, inner;  // diagonal * v, diagonal * w, v' diagonal w
  int* order;
};

static int rank, ranks, size;

static void* allocate(size_t bytes) {
  void* memory = malloc(bytes);
  if (!memory) MPI_Abort(MPI_COMM_WORLD, 1);
  return memory;
}

static double* allocate_row(void) { return allocate((size_t)size * sizeof(double)); }

// In [-1, 1).
static double random_number(uint64_t* state) { return (double)(int64_t)next_random(state) / 9223372036854775808.0; }

static void make_unit_vector(double* vector, uint64_t* state) {
  double square = 0;
  for (int i = 0; i < size; i++) vector[i] = random_number(state), square += vector[i] * vector[i];
  for (int i = 0; i < size; i++) vector[i] /= sqrt(square);
}

static struct Determinant make_recipe(struct Recipe* recipe, int number) {
  uint64_t state = 0x9e3779b97f4a7c15U * (uint64_t)(number + 1);
  struct Determinant expected = {0, 1};
  make_unit_vector(recipe->v, &state);
  make_unit_vector(recipe->w, &state);
  recipe->inner = 0;
  for (int i = 0; i < size; i++) {
    const double part = random_number(&state);
    recipe->diagonal[i] = part + (part < 0 ? -0.5 : 0.5);
    recipe->diagonal_v[i] = recipe->diagonal[i] * recipe->v[i];
    recipe->diagonal_w[i] = recipe->diagonal[i] * recipe->w[i];
    recipe->inner += recipe->v[i] * recipe->diagonal_w[i];
    expected.logarithm += log(fabs(recipe->diagonal[i]));
    if (part < 0) expected.sign = -expected.sign;
    recipe->order[i] = i;
  }
  for (int i = size - 1; i > 0; i--) {
    const int other = (int)(next_random(&state) % (uint64_t)(i + 1)), swap = recipe->order[i];
    recipe->order[i] = recipe->order[other];
    recipe->order[other] = swap;
    if (other != i) expected.sign = -expected.sign;
  }
  return expected;
}

static double number_at(const struct Recipe* recipe, int row, int column) {
  const int y = recipe->order[row];
  return (y == column ? recipe->diagonal[y] : 0) - 2 * recipe->v[y] * recipe->diagonal_v[column] -
         2 * recipe->diagonal_w[y] * recipe->w[column] + 4 * recipe->inner * recipe->v[y] * recipe->w[column];
}

static int rows_of(int of_rank) { return (size - of_rank + ranks - 1) / ranks; }

// The row numbers rank, rank + ranks, ...
static void make_rows(const struct Recipe* recipe, double* rows) {
  for (int i = 0; i < rows_of(rank); i++) {
    for (int column = 0; column < size; column++)
      rows[(size_t)i * (size_t)size + (size_t)column] = number_at(recipe, rank + i * ranks, column);
  }
}

struct Candidate {
  double value;
  int row;  // its number in the matrix
};

// The row with the largest element among those that have not been a pivot; the same on all ranks.
static struct Candidate choose_pivot(const double* rows, const char* used, int column) {
  struct Candidate own = {-1, 0}, all;
  for (int i = 0; i < rows_of(rank); i++) {
    const double value = fabs(rows[(size_t)i * (size_t)size + (size_t)column]);
    if (!used[i] && value > own.value) own = (struct Candidate){value, rank + i * ranks};
  }
  MPI_Allreduce(&own, &all, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
  return all;
}

static void eliminate(double* rows, const char* used, int column, const double* pivot_row) {
  for (int i = 0; i < rows_of(rank); i++) {
    double* row = rows + (size_t)i * (size_t)size;
    if (used[i]) continue;
    const double factor = row[column] / pivot_row[column];
    for (int x = column; x < size; x++) row[x] -= factor * pivot_row[x];
  }
}

// 1 or -1: whether the permutation is even.
static int sign_of(const int* order) {
  int sign = 1;
  char* seen = allocate((size_t)size);
  memset(seen, 0, (size_t)size);
  for (int i = 0; i < size; i++) {
    int length = 0;
    for (int at = i; !seen[at]; at = order[at]) seen[at] = 1, length++;
    if (length > 0 && length % 2 == 0) sign = -sign;
  }
  free(seen);
  return sign;
}

static struct Determinant determinant(double* rows) {
  double* pivot_row = allocate_row();
  char* used = allocate((size_t)rows_of(rank));
  int* pivots = allocate((size_t)size * sizeof(int));
  struct Determinant found = {0, 1};
  memset(used, 0, (size_t)rows_of(rank));
  for (int column = 0; column < size; column++) {
    const int row = pivots[column] = choose_pivot(rows, used, column).row, owner = row % ranks;
    if (rank == owner) {
      memcpy(pivot_row, rows + (size_t)(row / ranks) * (size_t)size, (size_t)size * sizeof(double));
      used[row / ranks] = 1;
    }
    MPI_Bcast(pivot_row + column, size - column, MPI_DOUBLE, owner, MPI_COMM_WORLD);
    eliminate(rows, used, column, pivot_row);
    found.logarithm += log(fabs(pivot_row[column]));
    if (pivot_row[column] < 0) found.sign = -found.sign;
  }
  found.sign *= sign_of(pivots);
  free(pivot_row), free(used), free(pivots);
  return found;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  size = argc > 1 ? atoi(argv[1]) : 300;
  const int matrices = argc > 2 ? atoi(argv[2]) : 1;
  struct Recipe recipe = {allocate_row(),
                          allocate_row(),
                          allocate_row(),
                          allocate_row(),
                          allocate_row(),
                          0,
                          allocate((size_t)size * sizeof(int))};
  double* rows = allocate((size_t)(rows_of(rank) + 1) * (size_t)size * sizeof(double));
  int good = 1;
  for (int i = 0; i < matrices; i++) {
    const struct Determinant expected = make_recipe(&recipe, i);
    make_rows(&recipe, rows);
    const struct Determinant found = determinant(rows);
    const double error = fabs(found.logarithm - expected.logarithm);
    good = good && found.sign == expected.sign && error < 1e-12 * size;
    if (rank == 0 && i == matrices - 1)
      printf("%s log |det| %.6f, sign %d, error %.1e\n", good ? "ok" : "WRONG", found.logarithm, found.sign, error);
  }
  MPI_Finalize();
  return good ? 0 : 1;
}
