"""Group privacy: nobody but their user can read the files that redrive writes."""
import os
import stat

from harness import Failure, test

HANDED_ON = ("sh", "-c", 'umask "$1" && shift && exec "$@"', "sh")


def expect_private(top):
    """Checks the directory and everything below it."""
    paths = [top, *top.rglob("*")]
    if open_to_others := [str(path) for path in paths if not path.is_symlink() and path.stat().st_mode & 0o077]:
        raise Failure(f"{len(open_to_others)} of {len(paths)} can be read by others, {open_to_others[0]} among them")
    return len(paths)


@test("privacy/modes")
def modes(ctx):
    """Traces, prepared traces and the cache, with any umask; the program keeps the umask that it was given."""
    for umask in ("0000", "0022", "0577"):
        ctx.fresh_work()
        home = ctx.directory / f"home-{umask}"
        env = {"REDRIVE_TRACE_DIR": str(home / "traces"), "REDRIVE_CACHE_DIR": str(home / "cache")}
        redrive = str(ctx.options.redrive)

        def run(*words):
            return ctx.expect_status(ctx.run(*HANDED_ON, "0" if words[0] != "record" else umask, redrive, *words, cwd=ctx.work, env=env), 0)
        recorded = run("record", "--bound", "2s", "--", "sh", "-c", "umask; /bin/ls / | /bin/cat > /dev/null; : > made")
        ctx.expect(recorded.stdout.splitlines()[0] == umask, recorded, "the program has another umask")
        mode = stat.S_IMODE(os.stat(ctx.work / "made").st_mode)
        ctx.expect(mode == 0o666 & ~int(umask, 8), recorded, f"what the program makes has mode {mode:o}")
        if expect_private(home / "traces") < 6 or expect_private(home / "cache") < 4:
            raise Failure("there is next to nothing to look at")
        run("prepare", "--bound", "1s")
        run("catalog")
        expect_private(home / "traces")
