"""MPI jobs, started as users start them: nothing is set except permission for root."""
import re

from harness import TESTS, compiled, needs
from redriving import Job

ENV = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# What `record --transport sockets` asks Open MPI for: where a run without a recorder must talk in the same way as one with it.
SOCKETS = {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_pml": "ob1", "PMIX_MCA_gds": "hash"}
RANKS = 4


def binary(options, name):
    needs("mpicc.openmpi", "mpirun.openmpi")
    return compiled(options, TESTS / "workloads" / f"{name}.c", compiler="mpicc.openmpi -O2", flags=["-lm"], directory="workloads")


def mpich_binary(options, name):
    needs("mpicc.mpich", "mpirun.mpich")
    return compiled(options, TESTS / "workloads" / f"{name}.c", compiler="mpicc.mpich -O2", flags=["-lm"], directory="workloads/mpich")


def command(options, name, *arguments, ranks=RANKS, mpirun=("mpirun.openmpi", "--oversubscribe")):
    return [*mpirun, "-n", str(ranks), str(binary(options, name)), *map(str, arguments)]


def job(options, name, *arguments, ranks=RANKS, **changes):
    return Job(command(options, name, *arguments, ranks=ranks), env=ENV, **changes)


def mpich_job(options, name, *arguments, ranks=RANKS, **changes):
    return Job(["mpirun.mpich", "-n", str(ranks), str(mpich_binary(options, name)), *map(str, arguments)], **changes)


def value_of(name, outcome):
    """The hexadecimal number that follows a word in the output: checksum, sum or digest."""
    match = re.search(rf"\b{name} ([0-9a-f]{{16}})\b", outcome.stdout)
    return match and match[1]
