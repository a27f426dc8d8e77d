# driven: messages and collectives; 2 ranks
# packages: mpich libmpich-dev
# tried: sockets instead of shared memory: Debian 12's MPICH then hangs in MPI_Finalize, natively 5 times of 15
mpicc.mpich mpi.c -o a
mpirun.mpich -n 2 ./a
