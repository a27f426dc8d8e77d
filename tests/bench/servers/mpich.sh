# work: MPICH, 4 ranks: a stencil with halos
# packages: mpich libmpich-dev
prepare() { mpicc.mpich -O2 -o jacobi "$(dirname "$0")/../../workloads/jacobi.c" -lm; }
drive() { mpirun.mpich -n 4 ./jacobi 400 $((100 * $2)) nocheck; }
