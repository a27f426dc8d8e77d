"""Group documented: every command line of the README and of the man page's EXAMPLES, run as it stands, in order, by a user with an empty home
directory. An episode begins with a recording (and what is compiled for it). Episodes of MPI programs have tests of their own."""
import os
import re

from harness import ROOT, Failure, Skip, needs, test
from redriving import is_root

LATE = 5  # this machine is busy
# What a test of MPI may set: root is refused otherwise, and so are more ranks than processors.
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def readme_lines():
    """The lines of fenced blocks. Not `make` lines, which run this test or have tests of their own."""
    blocks = re.findall(r"^```\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip() and not line.startswith("make ")]


def commands_of(page, prompt, section=""):
    """The command lines of a man page, or of a section of it, as they are typed."""
    text = (ROOT / "man" / page).read_text()
    if section:
        text = text.split(f".Sh {section}")[1].split("\n.Sh ")[0]
    begin = f".Dl {prompt}"
    return [line[len(begin):].replace("\\-", "-").replace("\\e", "\\") for line in text.splitlines() if line.startswith(begin)]


def man_lines():
    return commands_of("redrive.1", "$ ", "EXAMPLES")


def episodes(lines):
    found, compiled = [], False
    for line in lines:
        compiles = line.startswith(("gcc ", "mpicc "))
        if not found or compiles or (re.search(r"\bredrive record\b", line) and not compiled):
            found.append([])
        found[-1].append(line)
        compiled = compiles and "redrive record" not in line
    return found


def run_lines(ctx, lines, **settings):
    programs = ctx.directory / "bin"
    programs.mkdir()
    (programs / "redrive").symlink_to(ctx.options.redrive)
    (ctx.work / "tests").symlink_to(ROOT / "tests")  # the examples are typed where the repository is
    dropped = {"REDRIVE_TRACE_DIR": "", "REDRIVE_CACHE_DIR": ""}  # empty counts as not set
    settings["REDRIVE_RUN_DIR"] = str(ctx.directory / "run")  # sessions of this machine are not the test's
    for line in lines:
        outcome = ctx.run("bash", "-o", "pipefail", "-c", line, cwd=ctx.work,
                          env={**dropped, **settings, "PATH": f"{programs}:{os.environ['PATH']}"})
        sigpipe = outcome.status == 141 and "| head" in line
        ctx.expect(outcome.status in (0, LATE) or sigpipe, outcome, f"a documented command line ends with status {outcome.status}: {line}")
    if not (ctx.home / ".local" / "share" / "redrive" / "latest").exists():
        raise Failure("the traces are not where the README says")


def of_page(lines, mpi):
    return [line for episode in episodes(lines) if any("mpirun" in line for line in episode) == mpi for line in episode]


def with_mpi(ctx, lines):
    """Recording an MPI program as installed makes sense only if `record` keeps its ranks apart."""
    needs("mpirun", "mpicc")
    if "--transport" not in ctx.redrive("record", "--help").stdout:
        raise Skip("this redrive cannot keep the ranks of an MPI program apart by itself")
    if not (ctx.work / "jacobi").exists() and not any(line.startswith("mpicc") for line in lines):
        build, = [line for line in readme_lines() if line.startswith("mpicc")]
        lines = [build, *lines]
    run_lines(ctx, lines, **(MPI if is_root() else {}))


@test("documented/readme")
def readme(ctx):
    run_lines(ctx, of_page(readme_lines(), False))


@test("documented/readme_mpi")
def readme_mpi(ctx):
    with_mpi(ctx, of_page(readme_lines(), True))


@test("documented/man")
def man(ctx):
    run_lines(ctx, of_page(man_lines(), False))


@test("documented/man_mpi")
def man_mpi(ctx):
    with_mpi(ctx, of_page(man_lines(), True))
