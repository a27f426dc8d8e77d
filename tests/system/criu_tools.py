"""CRIU and crit for the tests: this machine's, or those of Debian 13, which are unpacked below the build directory (scripts/criu.sh)."""
import fcntl
import os
import pathlib
import shutil
import subprocess

from harness import ROOT

UNPACK_S = 300
# Why not.
NOT_ROOT = "not root"
NO_GROUPS = "no control groups of version 2"


def works(path):
    """Whether there is a CRIU in this PATH that works on this kernel, and a crit."""
    if not shutil.which("criu", path=path) or not shutil.which("crit", path=path):
        return False
    checked = subprocess.run(("criu", "check"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={"PATH": path}, check=False)
    return checked.returncode == 0


def criu_path(ctx):
    """A PATH with both, and an empty string; or a PATH, and why they cannot be used."""
    path, why = os.environ["PATH"], ""
    if os.geteuid() != 0:
        return path, NOT_ROOT
    if not works(path):
        path, why = unpacked_path(ctx, path)
    return path, why or groups_missing()


def groups_missing():
    mounts = [line.split() for line in pathlib.Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    return "" if any(kind == "cgroup2" and "rw" in options.split(",") for _, _, kind, options, *_ in mounts) else NO_GROUPS


def unpacked_path(ctx, path):
    place = ctx.options.build / "tests" / "criu"
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "version").exists():
            shutil.rmtree(place, ignore_errors=True)
            unpacked = subprocess.run((ROOT / "scripts" / "criu.sh", place), capture_output=True, text=True, timeout=UNPACK_S, check=False)
            if unpacked.returncode != 0:
                return path, unpacked.stderr.strip().splitlines()[-1]
    ours = f"{place / 'bin'}:{path}"
    return (ours, "") if works(ours) else (ours, "CRIU does not work on this kernel")
