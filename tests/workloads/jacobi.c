// Jacobi iteration on a square grid with halo exchange, rows divided among MPI ranks.
// usage: jacobi SIZE ITERATIONS [nocheck]
// Rank 0 prints a checksum of the result, and checks it against that of a computation by one process (which takes as long again).
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Grid {
  int size, rows;     // columns and own rows, without borders
  double *now, *next;
};

static double* row(double* cells, int size, int index) { return cells + (size_t)index * (size_t)(size + 2); }

// Row 0 and row rows+1 are borders or a neighbour's rows; `first` is the global number of row 1.
static struct Grid make_grid(int size, int rows, int first) {
  struct Grid grid = {size, rows, NULL, NULL};
  const size_t cells = (size_t)(rows + 2) * (size_t)(size + 2);
  grid.now = calloc(cells, sizeof(double));
  for (int y = 0; y < rows + 2; y++) {
    for (int x = 0; x < size + 2; x++) {
      const int global = first + y - 1;
      const int border = global == -1 || global == size || x == 0 || x == size + 1;
      row(grid.now, size, y)[x] = border ? (double)((global + 7) * 31 % 17 + x % 13) : 0;
    }
  }
  grid.next = malloc(cells * sizeof(double));
  memcpy(grid.next, grid.now, cells * sizeof(double));
  return grid;
}

static void sweep(struct Grid* grid) {
  for (int y = 1; y <= grid->rows; y++) {
    const double *above = row(grid->now, grid->size, y - 1), *here = row(grid->now, grid->size, y);
    const double* below = row(grid->now, grid->size, y + 1);
    double* out = row(grid->next, grid->size, y);
    for (int x = 1; x <= grid->size; x++) out[x] = 0.25 * (above[x] + below[x] + here[x - 1] + here[x + 1]);
  }
  double* swap = grid->now;
  grid->now = grid->next;
  grid->next = swap;
}

static void exchange_halo(struct Grid* grid, int rank, int ranks) {
  const int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
  const int width = grid->size + 2;
  MPI_Request requests[4];
  MPI_Irecv(row(grid->now, grid->size, 0), width, MPI_DOUBLE, up, 0, MPI_COMM_WORLD, &requests[0]);
  MPI_Irecv(row(grid->now, grid->size, grid->rows + 1), width, MPI_DOUBLE, down, 1, MPI_COMM_WORLD, &requests[1]);
  MPI_Isend(row(grid->now, grid->size, 1), width, MPI_DOUBLE, up, 1, MPI_COMM_WORLD, &requests[2]);
  MPI_Isend(row(grid->now, grid->size, grid->rows), width, MPI_DOUBLE, down, 0, MPI_COMM_WORLD, &requests[3]);
  MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

// Exact: a sum of bit patterns, so that the order of adding does not matter.
static uint64_t checksum(const struct Grid* grid) {
  uint64_t sum = 0;
  for (int y = 1; y <= grid->rows; y++) {
    for (int x = 1; x <= grid->size; x++) {
      uint64_t bits;
      memcpy(&bits, &row(grid->now, grid->size, y)[x], sizeof bits);
      sum += bits * 0x9e3779b97f4a7c15ULL;
    }
  }
  return sum;
}

static uint64_t serial_checksum(int size, int iterations) {
  struct Grid grid = make_grid(size, size, 0);
  for (int i = 0; i < iterations; i++) sweep(&grid);
  return checksum(&grid);
}

int main(int argc, char** argv) {
  int rank, ranks;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int size = argc > 1 ? atoi(argv[1]) : 256, iterations = argc > 2 ? atoi(argv[2]) : 200;
  const int first = (int)((int64_t)size * rank / ranks), end = (int)((int64_t)size * (rank + 1) / ranks);

  struct Grid grid = make_grid(size, end - first, first);
  const double start_s = MPI_Wtime();
  for (int i = 0; i < iterations; i++) {
    exchange_halo(&grid, rank, ranks);
    sweep(&grid);
  }
  uint64_t own = checksum(&grid), sum = 0;
  MPI_Reduce(&own, &sum, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  int good = 1;
  if (rank == 0) {
    fprintf(stderr, "%.2f s\n", MPI_Wtime() - start_s);
    good = argc > 3 || sum == serial_checksum(size, iterations);
    printf("%s checksum %016lx\n", good ? "ok" : "WRONG", sum);
  }
  MPI_Finalize();
  return good ? 0 : 1;
}
