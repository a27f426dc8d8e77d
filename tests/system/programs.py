"""Group programs: every tests/programs/*.c and *.cc, found by wildcard, natively and recorded and re-driven with a checkpoint every
100 ms. The hints at the top of a program are described in tests/programs/test.h."""
import re
import shlex

from harness import TESTS, Failure, compiled, test
from redriving import Job, copy_into, cycle, images_by_unit

HINT = re.compile(r"^// (build|args|exit|images): (.*)$")


def hints_of(source):
    found = {}
    for line in source.read_text().splitlines():
        if not line.startswith("//"):
            break
        if match := HINT.match(line):
            found[match[1]] = match[2]
    return found


def program(options, name):
    """The binary of a program, by its name."""
    source = next((TESTS / "programs").glob(f"{name}.c*"))
    compiler = "gcc -O1" if source.suffix == ".c" else "g++ -O1 -std=c++20"
    return compiled(options, source, compiler=compiler, flags=shlex.split(hints_of(source).get("build", "")))


def job_of(ctx, name, *arguments, **changes):
    """A Job that runs a copy of the program in the working directory."""
    return Job([f"./{name}", *arguments], prepare=copy_into(program(ctx.options, name)), **changes)


def run_program(ctx, source):
    hints = hints_of(source)
    job = job_of(ctx, source.stem, *shlex.split(hints.get("args", "")), status=int(hints.get("exit", 0)),
                 record_options=("--bound", "2s", "--checkpoint-period", "100ms"))
    cycle(ctx, job)
    wanted = int(hints.get("images", 0))
    found = sum(map(len, images_by_unit(ctx).values()))
    if found < wanted:
        raise Failure(f"{found} image checkpoints, at least {wanted} expected")


def register():
    for source in sorted([*(TESTS / "programs").glob("*.c"), *(TESTS / "programs").glob("*.cc")]):
        test(f"programs/{source.stem}", timeout_s=60)(lambda ctx, source=source: run_program(ctx, source))


register()
