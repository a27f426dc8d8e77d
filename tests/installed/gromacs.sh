# driven: 500 steps of water, by threads of OpenMP, by two ranks of threads, and by two ranks of MPI
# packages: gromacs gromacs-data openmpi-bin
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cat > water.top <<'X'
#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spce.itp"
[ system ]
water
[ molecules ]
X
cat > run.mdp <<'X'
integrator = md
dt = 0.002
nsteps = 500
cutoff-scheme = Verlet
coulombtype = PME
rcoulomb = 0.9
rvdw = 0.9
gen-vel = yes
gen-seed = 1
X
{
  gmx solvate -cs spc216.gro -box 2 2 2 -o water.gro -p water.top
  gmx grompp -f run.mdp -c water.gro -p water.top -o run.tpr -maxwarn 2
  gmx mdrun -s run.tpr -deffnm threads
  gmx mdrun -s run.tpr -deffnm ranks -ntmpi 2 -ntomp 1
  mpirun.openmpi --oversubscribe -n 2 gmx_mpi mdrun -s run.tpr -deffnm mpi -ntomp 1
} > out 2>&1 || { cat out >&2; exit 1; }
grep -q "Finished mdrun" threads.log && grep -q "Finished mdrun" ranks.log && grep -q "Finished mdrun" mpi.log
