// Poisson's equation on the unit square, by red-black successive over-relaxation; MPI ranks have blocks of the grid.
// usage: poisson SIZE SOLVES
// In each half of an iteration neighbours exchange the edges of their blocks; every 10 iterations all ranks find out
// how much still changes, and stop if that is negligible. Each solve has a different right-hand side. Checked: the result is
// the known solution.
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kCheckPeriod = 10 };
enum Side { kUp, kDown, kLeft, kRight, kSides };

struct Block {
  MPI_Comm grid;
  int neighbours[kSides];
  int size;              // of the whole square
  int first[2], own[2];  // rows, columns: number of the first, how many
  double *u, *f;         // with a border of one cell
  MPI_Datatype column;
};

static size_t at(const struct Block* block, int y, int x) {
  return (size_t)y * (size_t)(block->own[1] + 2) + (size_t)x;
}

static struct Block make_block(int size) {
  struct Block block = {.size = size};
  int ranks, rank, dims[2] = {0, 0}, place[2];
  const int periodic[2] = {0, 0};
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Dims_create(ranks, 2, dims);
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periodic, 0, &block.grid);
  MPI_Comm_rank(block.grid, &rank);
  MPI_Cart_coords(block.grid, rank, 2, place);
  MPI_Cart_shift(block.grid, 0, 1, &block.neighbours[kUp], &block.neighbours[kDown]);
  MPI_Cart_shift(block.grid, 1, 1, &block.neighbours[kLeft], &block.neighbours[kRight]);
  for (int axis = 0; axis < 2; axis++) {
    block.first[axis] = size * place[axis] / dims[axis];
    block.own[axis] = size * (place[axis] + 1) / dims[axis] - block.first[axis];
  }
  const size_t cells = at(&block, block.own[0] + 2, 0);
  block.u = malloc(cells * sizeof(double));
  block.f = malloc(cells * sizeof(double));
  if (!block.u || !block.f) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Type_vector(block.own[0], 1, block.own[1] + 2, MPI_DOUBLE, &block.column);
  MPI_Type_commit(&block.column);
  return block;
}

static void exchange_edges(struct Block* block) {
  const int rows = block->own[0], columns = block->own[1];
  const size_t edges[kSides] = {at(block, 1, 1), at(block, rows, 1), at(block, 1, 1), at(block, 1, columns)};
  const size_t borders[kSides] = {at(block, 0, 1), at(block, rows + 1, 1), at(block, 1, 0), at(block, 1, columns + 1)};
  MPI_Request requests[2 * kSides];
  for (int side = 0; side < kSides; side++) {
    const MPI_Datatype type = side < kLeft ? MPI_DOUBLE : block->column;
    const int count = side < kLeft ? columns : 1, opposite = side ^ 1;
    MPI_Irecv(block->u + borders[side], count, type, block->neighbours[side], opposite, block->grid, &requests[side]);
    MPI_Isend(block->u + edges[side], count, type, block->neighbours[side], side, block->grid,
              &requests[kSides + side]);
  }
  MPI_Waitall(2 * kSides, requests, MPI_STATUSES_IGNORE);
}

// Relaxes the cells of a colour. Returns the largest change.
static double relax(struct Block* block, int colour, double omega) {
  const int width = block->own[1] + 2;
  double largest = 0;
  for (int y = 1; y <= block->own[0]; y++) {
    double* u = block->u + at(block, y, 0);
    const double* f = block->f + at(block, y, 0);
    for (int x = 1 + (block->first[0] + y + block->first[1] + 1 + colour) % 2; x <= block->own[1]; x += 2) {
      const double change = omega * (0.25 * (u[x - width] + u[x + width] + u[x - 1] + u[x + 1] + f[x]) - u[x]);
      u[x] += change;
      largest = fmax(largest, fabs(change));
    }
  }
  return largest;
}

// One of the waves that solve the discrete equation with a multiple of themselves as right-hand side.
static double solution_at(const struct Block* block, int y, int x, int solve) {
  const double h = 1.0 / (block->size + 1);
  return sin((1 + solve % 3) * M_PI * (block->first[0] + y) * h) *
         sin((1 + solve % 2) * M_PI * (block->first[1] + x) * h);
}

static void set_up(struct Block* block, int solve) {
  const double h = 1.0 / (block->size + 1);
  const double multiple =
      4 * (pow(sin((1 + solve % 3) * M_PI * h / 2), 2) + pow(sin((1 + solve % 2) * M_PI * h / 2), 2));
  memset(block->u, 0, at(block, block->own[0] + 2, 0) * sizeof(double));
  for (int y = 1; y <= block->own[0]; y++) {
    for (int x = 1; x <= block->own[1]; x++) block->f[at(block, y, x)] = multiple * solution_at(block, y, x, solve);
  }
}

// Returns the number of iterations.
static int iterate(struct Block* block) {
  const double omega = 2 / (1 + sin(M_PI / (block->size + 1)));
  for (int iteration = 1;; iteration++) {
    double own = 0, largest;
    for (int colour = 0; colour < 2; colour++) {
      exchange_edges(block);
      own = fmax(own, relax(block, colour, omega));
    }
    if (iteration % kCheckPeriod != 0) continue;
    MPI_Allreduce(&own, &largest, 1, MPI_DOUBLE, MPI_MAX, block->grid);
    if (largest < 1e-12) return iteration;
  }
}

static double error_of(const struct Block* block, int solve) {
  double own = 0, largest;
  for (int y = 1; y <= block->own[0]; y++) {
    for (int x = 1; x <= block->own[1]; x++)
      own = fmax(own, fabs(block->u[at(block, y, x)] - solution_at(block, y, x, solve)));
  }
  MPI_Allreduce(&own, &largest, 1, MPI_DOUBLE, MPI_MAX, block->grid);
  return largest;
}

int main(int argc, char** argv) {
  int rank, iterations = 0;
  double error = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int size = argc > 1 ? atoi(argv[1]) : 128, solves = argc > 2 ? atoi(argv[2]) : 1;
  struct Block block = make_block(size);
  for (int solve = 0; solve < solves; solve++) {
    set_up(&block, solve);
    iterations += iterate(&block);
    error = fmax(error, error_of(&block, solve));
  }
  const int good = error < 1e-9;
  if (rank == 0) printf("%s %d iterations, error %.1e\n", good ? "ok" : "WRONG", iterations, error);
  MPI_Finalize();
  return good ? 0 : 1;
}
