# driven: 300 steps of 2,048 atoms on 4 ranks
# packages: lammps openmpi-bin
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cat > in.lj <<'X'
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 8 0 8 0 8
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
fix 1 all nve
thermo 50
run 300
X
mpirun.openmpi --oversubscribe -n 4 lmp -in in.lj > out
grep -q "^ *300 *0.738" out
