// Two-dimensional FFT of a square of complex numbers, rows divided among MPI ranks, transposed by MPI_Alltoall.
// usage: fft SIZE REPEATS      (SIZE: a power of two, divisible by the number of ranks)
// Each repeat transforms there and back. Checked: the result is the input again, and coefficients of the first
// transform equal the sums that define them.
#include <complex.h>
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef double complex Number;

static int rank, ranks, size, rows;  // rows: of this rank, the first of which is number rank * rows
static Number *roots, *outgoing, *incoming;

static void* allocate(size_t numbers) {
  void* memory = malloc(numbers * sizeof(Number));
  if (!memory) MPI_Abort(MPI_COMM_WORLD, 1);
  return memory;
}

// Cooley and Tukey, in place: bit reversal, then butterflies. direction: -1 forward, 1 backward (not divided by the size).
static void transform_row(Number* row, int direction) {
  for (int i = 1, j = 0; i < size; i++) {
    int bit = size >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j |= bit;
    if (i < j) {
      const Number swap = row[i];
      row[i] = row[j];
      row[j] = swap;
    }
  }
  for (int length = 2; length <= size; length *= 2) {
    for (int start = 0; start < size; start += length) {
      for (int k = 0; k < length / 2; k++) {
        const Number root = roots[k * (size / length)];
        const Number odd = row[start + k + length / 2] * (direction < 0 ? root : conj(root));
        const Number even = row[start + k];
        row[start + k] = even + odd;
        row[start + k + length / 2] = even - odd;
      }
    }
  }
}

// Each rank sends every other rank the block of its rows that becomes part of the other's.
static void transpose(Number* cells) {
  const size_t block = (size_t)rows * (size_t)rows;
  for (int to = 0; to < ranks; to++) {
    for (int y = 0; y < rows; y++) {
      for (int x = 0; x < rows; x++)
        outgoing[(size_t)to * block + (size_t)(x * rows + y)] =
            cells[(size_t)y * (size_t)size + (size_t)(to * rows + x)];
    }
  }
  MPI_Alltoall(outgoing, 2 * (int)block, MPI_DOUBLE, incoming, 2 * (int)block, MPI_DOUBLE, MPI_COMM_WORLD);
  for (int from = 0; from < ranks; from++) {
    for (int y = 0; y < rows; y++)
      memcpy(cells + (size_t)y * (size_t)size + (size_t)(from * rows),
             incoming + (size_t)from * block + (size_t)(y * rows), (size_t)rows * sizeof(Number));
  }
}

// The result of a forward transform is transposed; a backward transform takes that and gives rows again.
static void transform(Number* cells, int direction) {
  for (int y = 0; y < rows; y++) transform_row(cells + (size_t)y * (size_t)size, direction);
  transpose(cells);
  for (int y = 0; y < rows; y++) transform_row(cells + (size_t)y * (size_t)size, direction);
}

static Number input_at(int y, int x) {
  const uint64_t hash = ((uint64_t)y * 2654435761u + (uint64_t)x) * 0x9e3779b97f4a7c15ULL;
  return (double)(hash >> 40) / (1 << 24) - 0.5 + I * ((double)(hash >> 16 & 0xffffff) / (1 << 24) - 0.5);
}

// A coefficient by its definition: a sum over all that the ranks hold.
static Number coefficient(int v, int u) {
  Number own = 0, all = 0;
  for (int y = rank * rows; y < (rank + 1) * rows; y++) {
    for (int x = 0; x < size; x++)
      own += input_at(y, x) *
             cexp(-2 * M_PI * I * ((double)((int64_t)v * y % size) + (double)((int64_t)u * x % size)) / size);
  }
  MPI_Allreduce(&own, &all, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

// The largest difference between coefficients of the transformed (and so transposed) cells and their definition.
static double coefficient_error(const Number* cells) {
  double error = 0;
  for (int sample = 0; sample < 8; sample++) {
    const int v = (sample * 37 + 5) % size, u = (sample * 91 + 1) % size;
    const Number expected = coefficient(v, u);
    if (u / rows == rank) error = fmax(error, cabs(cells[(size_t)(u % rows) * (size_t)size + (size_t)v] - expected));
  }
  return error;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  size = argc > 1 ? atoi(argv[1]) : 256;
  const int repeats = argc > 2 ? atoi(argv[2]) : 20;
  if (size < 2 || (size & (size - 1)) || size % ranks) {
    if (rank == 0) fprintf(stderr, "fft: SIZE must be a power of two and a multiple of the number of ranks\n");
    MPI_Finalize();
    return 2;
  }
  rows = size / ranks;
  const size_t own = (size_t)rows * (size_t)size;
  Number* cells = allocate(own);
  outgoing = allocate(own);
  incoming = allocate(own);
  roots = allocate((size_t)size);
  for (int k = 0; k < size; k++) roots[k] = cexp(-2 * M_PI * I * k / size);
  for (int y = 0; y < rows; y++) {
    for (int x = 0; x < size; x++) cells[(size_t)y * (size_t)size + (size_t)x] = input_at(rank * rows + y, x);
  }
  double errors[2] = {0, 0}, largest[2];  // of the coefficients; of the forward and backward transform together
  for (int i = 0; i < repeats; i++) {
    transform(cells, -1);
    if (i == 0) errors[0] = coefficient_error(cells);
    transform(cells, 1);
    for (size_t n = 0; n < own; n++) cells[n] /= (double)size * (double)size;
  }
  for (int y = 0; y < rows; y++) {
    for (int x = 0; x < size; x++)
      errors[1] = fmax(errors[1], cabs(cells[(size_t)y * (size_t)size + (size_t)x] - input_at(rank * rows + y, x)));
  }
  MPI_Allreduce(errors, largest, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  const int good = largest[0] < 1e-10 * size && largest[1] < 1e-9;
  if (rank == 0) printf("%s errors %.1e %.1e\n", good ? "ok" : "WRONG", largest[0], largest[1]);
  MPI_Finalize();
  return good ? 0 : 1;
}
