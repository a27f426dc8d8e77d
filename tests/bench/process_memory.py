"""How much memory a command and all processes that it starts have together, at most."""
import os
import pathlib
import subprocess
import time

from harness import Failure


def peak_of(command, directory, env, sample_s, timeout_s):
    """In bytes, looked at every `sample_s` until the command has ended: each process's share of its pages, apart from those of files."""
    process = subprocess.Popen([str(word) for word in command], cwd=directory, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    peak, limit = 0, time.monotonic() + timeout_s
    while process.poll() is None:
        if time.monotonic() > limit:
            process.kill()
            process.wait()
            raise Failure(f"{pathlib.Path(command[0]).name} took longer than {timeout_s:.0f} s")
        peak = max(peak, sum(map(memory_of, family_of(process.pid))))
        time.sleep(sample_s)
    if peak == 0:
        raise Failure(f"{pathlib.Path(command[0]).name} ended before its memory could be looked at")
    return peak


def family_of(pid):
    """The process, and what descends from it."""
    parents = {}
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit():
                parents[int(entry)] = int(pathlib.Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            pass  # it has ended
    family = {pid}
    while grown := {child for child, parent in parents.items() if parent in family} - family:
        family |= grown
    return family


def memory_of(pid):
    try:
        rows = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(row.split()[1]) * 1024 for row in rows if row.startswith(("Pss_Anon:", "Pss_Shmem:")))
