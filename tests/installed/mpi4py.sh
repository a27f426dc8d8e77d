# driven: objects, arrays, shared memory; 3 ranks
# packages: python3-mpi4py python3-numpy openmpi-bin
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cat > a.py <<'X'
from mpi4py import MPI
import numpy as np
c = MPI.COMM_WORLD; r = c.rank; n = c.size
assert c.allreduce(r) == n*(n-1)//2 and c.sendrecv({'a': r}, dest=(r+1) % n, source=(r-1) % n) == {'a': (r-1) % n}
o = np.empty(100000); c.Allreduce(np.full(100000, float(r)), o); assert o[0] == n*(n-1)/2
w = MPI.Win.Allocate_shared(8 if r == 0 else 0, 8); w.Free()
X
mpirun.openmpi --oversubscribe -n 3 /usr/bin/python3 a.py
