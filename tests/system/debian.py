"""Group debian: the Debian releases that the README names, other than the one on which these tests run. redrive is built and tried in a root
directory of that release, which debootstrap makes once (scripts/in_debian.sh)."""
import os
import pathlib

from harness import ROOT, Failure, Skip, test

RELEASES = ("bookworm", "trixie")
CANNOT = 99  # scripts/in_debian.sh: there is no such root to be had, and why

SMOKE = """
set -eu
export HOME=$(mktemp -d)
redrive=$PWD/$1/redrive
cd "$HOME"
"$redrive" check --host
"$redrive" record --bound 2s -- sh -c 'seq 2000 | sort -n | tail -n 1' > out
grep -qx 2000 out
"$redrive" replay --all --verify
"$redrive" check
"""


def own_release():
    lines = pathlib.Path("/etc/os-release").read_text().splitlines()
    return next((line.split("=")[1].strip('"') for line in lines if line.startswith("VERSION_CODENAME=")), "")


def other_release():
    return next(release for release in RELEASES if release != own_release())


def in_debian(ctx, release, variant, script, *words):
    """Runs a shell script there, in the repository, and expects it to succeed."""
    kept = {key: os.environ[key] for key in ("REDRIVE_ROOTS",) if key in os.environ}
    command = (ROOT / "scripts" / "in_debian.sh", release, variant, "sh", "-c", script, "sh", *words)
    outcome = ctx.run(*command, cwd=ROOT, env=kept)
    if outcome.status == CANNOT:
        raise Skip(outcome.stderr.strip().splitlines()[-1])
    return ctx.expect_status(outcome, 0)


def build_below_root(ctx, release):
    """Where the release's build goes, relative to the repository, which is all that a root sees of this machine."""
    build = ctx.options.build / f"debian-{release}"
    if not build.is_relative_to(ROOT):
        raise Failure(f"{build} is not below {ROOT}")
    return build.relative_to(ROOT)


@test("debian/other_release", timeout_s=3600, slow=True)
def other_release_builds(ctx):
    release = other_release()
    build = build_below_root(ctx, release)
    in_debian(ctx, release, "build", f'make -j{os.cpu_count()} BUILD="$1" CXXFLAGS=-O1 LDFLAGS=-s', build)
    told = in_debian(ctx, release, "build", SMOKE, build).stdout
    if "0 divergences, 0 not verified" not in told:
        raise Failure(f"a replay on {release} says: {told}")


@test("debian/other_release_suite", timeout_s=4 * 3600, slow=True)
def other_release_suite(ctx):
    """Everything that `make check` does, except this group."""
    release = other_release()
    build = build_below_root(ctx, f"{release}-suite")
    in_debian(ctx, release, "build", f"""
        set -eu
        scripts/deps.sh --test
        make -j{os.cpu_count()} BUILD="$1" tests
        "$1/unit_tests"
        export REDRIVE=$PWD/$1/redrive REDRIVE_BUILD=$PWD/$1 TMPDIR=$PWD/$1/tmp
        mkdir -p -m 1777 "$TMPDIR"  # not in memory, where files are not kept in caches
        python3 tests/system/run.py $(python3 tests/system/run.py --list | grep -v -e '(slow)' -e '^debian/')""", build)


# Ranks are units of their own, each rank can have a trace of its own, and all verify.
MPI = """
set -eu
export HOME=$(mktemp -d) REDRIVE_TRACE_DIR=$(mktemp -d) OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
apt-get update -qq
apt-get install -y -qq --no-install-recommends openmpi-bin libopenmpi-dev mpich libmpich-dev > /dev/null
redrive=$PWD/$1/redrive source=$PWD/tests/workloads/jacobi.c
cd "$HOME"
for mpi in openmpi mpich; do
  mpicc.$mpi -O2 -o jacobi "$source" -lm
  many=$(test $mpi = mpich || echo --oversubscribe)
  "$redrive" record --bound 2s -- mpirun.$mpi $many -n 4 ./jacobi 64 20 2> said
  grep -q 'sockets instead of shared memory' said
  ! grep 'became part' said
  "$redrive" replay --all --verify
  rm -r "$REDRIVE_TRACE_DIR"/*
  mpirun.$mpi $many -n 4 "$redrive" record --bound 2s ./jacobi 64 20
  for trace in "$REDRIVE_TRACE_DIR"/*; do test -h "$trace" || "$redrive" replay --all --verify "$trace"; done
  rm -r "$REDRIVE_TRACE_DIR"/*
done
"""


@test("debian/other_mpi", timeout_s=1800, slow=True)
def other_mpi(ctx):
    """The other release's Open MPI and MPICH."""
    release = other_release()
    build = build_below_root(ctx, release)
    in_debian(ctx, release, "build", f'make -j{os.cpu_count()} BUILD="$1" CXXFLAGS=-O1 LDFLAGS=-s', build)
    told = in_debian(ctx, release, "build", MPI, build).stdout
    if told.count("0 divergences, 0 not verified") != 2 * (1 + 4):
        raise Failure(f"replays of ranks on {release} say: {told}")


PACKAGE = """
set -eu
apt-get update -qq
apt-get install -y -qq --no-install-recommends "$PWD/$1" bash-completion zsh fish man-db > /dev/null
test "$(stat -c %s /usr/bin/redrive)" -lt 20000000
export HOME=$(mktemp -d)
cd "$HOME"
redrive record --bound 2s -- sh -c 'seq 2000 | sort -n | tail -n 1' > out
redrive replay --all --verify
gzip -t /usr/share/man/man1/redrive.1.gz
test -f /usr/share/doc/redrive/copyright || zcat /usr/share/doc/redrive/changelog.gz | head -n 1
bash -c '. /usr/share/bash-completion/bash_completion; . /usr/share/bash-completion/completions/redrive
  COMP_WORDS=(redrive rep) COMP_CWORD=1 COMP_LINE="redrive rep" COMP_POINT=11; _redrive; echo "bash: ${COMPREPLY[*]}"
  COMP_WORDS=(redrive replay s) COMP_CWORD=2 COMP_LINE="redrive replay s" COMP_POINT=16; COMPREPLY=(); _redrive; echo "bash: ${COMPREPLY[*]}"'
zsh -c 'autoload -U compinit; compinit -u; echo "zsh: $_comps[redrive]"; autoload +X _redrive; zsh -n /usr/share/zsh/vendor-completions/_redrive'
fish -c 'complete -C "redrive rep"; complete -C "redrive record --policy f"'
apt-get remove -y -qq redrive > /dev/null
hash -r
! command -v redrive
"""


def try_package(ctx, release, directory):
    package, = (ROOT / directory).glob("redrive_*.deb")
    outcome = in_debian(ctx, release, "bare", PACKAGE, package.relative_to(ROOT))
    for said in ("0 divergences, 0 not verified", "bash: replay\n", "seq", "zsh: _redrive\n", "\nreplay\t", "deadline"):
        ctx.expect(said in outcome.stdout, outcome, f"does not say '{said}'")


@test("debian/package", timeout_s=900, slow=True)
def package(ctx):
    """`make deb` of this machine, in a root directory of the same release that has nothing else."""
    build = ctx.options.build
    ctx.expect_status(ctx.run("make", "-s", "deb", f"BUILD={build}", cwd=ROOT), 0)
    try_package(ctx, own_release(), build)


@test("debian/other_package", timeout_s=1500, slow=True)
def other_package(ctx):
    release = other_release()
    build = build_below_root(ctx, release)
    in_debian(ctx, release, "build", f'make -j{os.cpu_count()} BUILD="$1" CXXFLAGS=-O1 LDFLAGS=-s all && make -s BUILD="$1" CXXFLAGS=-O1 LDFLAGS=-s deb',
              build)
    try_package(ctx, release, build)
