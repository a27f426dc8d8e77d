// What openmpi.sh and mpich.sh drive: each rank checks what it gets.
#include <mpi.h>
int main(int argc, char** argv) {
  int rank, size, sum, got;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < 20; i++) {
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &got, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (got != (rank + size - 1) % size) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (sum != size * (size - 1) / 2) MPI_Abort(MPI_COMM_WORLD, 2);
  }
#ifdef ONE_SIDED
  int seen = -1;
  MPI_Win window;
  MPI_Win_create(&seen, sizeof seen, sizeof seen, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  MPI_Win_fence(0, window);
  MPI_Put(&rank, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, window);
  MPI_Win_fence(0, window);
  if (seen != (rank + size - 1) % size) MPI_Abort(MPI_COMM_WORLD, 3);
  MPI_Win_free(&window);
#endif
  MPI_Finalize();
}
