# driven: messages and collectives; 2 ranks
# packages: mpich libmpich-dev
cat > a.c <<'X'
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
  MPI_Finalize();
}
X
mpicc.mpich a.c -o a
mpirun.mpich -n 2 ./a
