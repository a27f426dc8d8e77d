"""MPI jobs as tests and benchmarks run them: four ranks that talk by TCP, apart from mpirun as far as OpenMPI allows."""
import re

from harness import TESTS, compiled, needs
from redriving import Job

ENV = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PMIX_MCA_gds": "hash"}
RANKS = 4


def binary(options, name):
    needs("mpicc", "mpirun")
    return compiled(options, TESTS / "workloads" / f"{name}.c", compiler="mpicc -O2", flags=["-lm"], directory="workloads")


def command(options, name, *arguments, ranks=RANKS):
    return ["mpirun", "--oversubscribe", "--mca", "btl", "tcp,self", "-np", str(ranks), str(binary(options, name)),
            *map(str, arguments)]


def job(options, name, *arguments, ranks=RANKS, **changes):
    return Job(command(options, name, *arguments, ranks=ranks), env=ENV, **changes)


def value_of(name, outcome):
    """The hexadecimal number that follows a word in the output: checksum, sum or digest."""
    match = re.search(rf"\b{name} ([0-9a-f]{{16}})\b", outcome.stdout)
    return match and match[1]
