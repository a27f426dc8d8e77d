# driven: messages, collectives and one-sided calls; 4 ranks, then 16
# packages: openmpi-bin libopenmpi-dev
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpicc.openmpi -DONE_SIDED mpi.c -o a
mpirun.openmpi --oversubscribe -n 4 ./a
mpirun.openmpi --oversubscribe -n 16 ./a
