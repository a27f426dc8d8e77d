# driven: the energy of a water molecule, on two ranks that share a window of memory
# packages: nwchem-openmpi nwchem-data openmpi-bin
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cat > water.nw <<'X'
start water
geometry units angstrom
 O 0 0 0
 H 0 0.757 0.587
 H 0 -0.757 0.587
end
basis
 * library 6-31g
end
task scf energy
X
mpirun.openmpi --oversubscribe -n 2 nwchem.openmpi water.nw > out
grep -q "Total SCF energy = *-75.9839" out
