// Each rank of an MPI job says that it is there, and the first that it has heard of all.
// usage: hello
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int rank, ranks, there = 1, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  printf("hello from rank %d of %d\n", rank, ranks);
  MPI_Reduce(&there, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%s %d ranks\n", sum == ranks ? "ok" : "WRONG", sum);
  MPI_Finalize();
  return rank == 0 && sum != ranks;
}
