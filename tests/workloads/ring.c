// A token goes round a ring of MPI ranks; each adds to it and works a little.
// usage: ring ROUNDS WORK
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  int rank, ranks, good = 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int rounds = argc > 1 ? atoi(argv[1]) : 500, work = argc > 2 ? atoi(argv[2]) : 1;
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  uint64_t token[64] = {0};
  for (int i = 0; i < rounds; i++) {
    if (rank > 0 || i > 0) MPI_Recv(token, 64, MPI_UINT64_T, previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    volatile uint64_t x = token[0] + 1;
    for (int j = 0; j < work * 1000; j++) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    token[rank % 64] += (uint64_t)rank + 1;
    MPI_Send(token, 64, MPI_UINT64_T, next, 0, MPI_COMM_WORLD);
  }
  if (rank == 0) {
    MPI_Recv(token, 64, MPI_UINT64_T, previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < ranks && i < 64; i++) good = good && token[i] == (uint64_t)(i + 1) * (uint64_t)rounds;
    printf("%s %d rounds\n", good ? "ok" : "WRONG", rounds);
  }
  MPI_Finalize();
  return good ? 0 : 1;
}
