# driven: messages and collectives; 2 ranks
# packages: mpich libmpich-dev
mpicc.mpich mpi.c -o a
mpirun.mpich -n 2 ./a
