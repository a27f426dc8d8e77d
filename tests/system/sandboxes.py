"""Group sandboxes: programs that install seccomp filters for themselves or for programs that they start, as installed."""
import errno
import os
import pathlib
import struct
import subprocess

from harness import Skip, needs, test
from real import shell_job
from redriving import cycle, free_port, is_root

LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # <linux/filter.h>
ALLOW, ERRNO = 0x7fff0000, 0x00050000           # <linux/seccomp.h>
MKDIR, MKDIRAT, CLONE3 = 83, 258, 435


def answers(numbers):
    """A filter that answers these system calls with errnos, and allows all others."""
    program = [(LOAD, 0, 0, 0)]  # the number
    for number, error in numbers.items():
        program += [(JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | error)]
    program.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


BWRAP = """
bwrap --ro-bind / / --dev /dev --proc /proc --bind "$(pwd)" "$(pwd)" --unshare-pid --unshare-ipc --seccomp 9 -- sh inside.sh 9< filter
echo ok
"""
INSIDE = """
! mkdir never 2> errors
grep -q 'not permitted' errors
grep -q '^Seccomp:.*2' /proc/self/status
test "$(/usr/bin/python3 -c 'import threading as t; x = t.Thread(target=print, args=("thread",)); x.start(); x.join()')" = thread
"""


@test("sandboxes/bubblewrap")
def bubblewrap(ctx):
    needs("bwrap")
    if subprocess.run(["bwrap", "--ro-bind", "/", "/", "true"], capture_output=True).returncode:
        raise Skip("this user may make no namespaces here")
    job = shell_job(BWRAP, files={"inside.sh": "set -eu\n" + INSIDE})
    write_scripts = job.prepare

    def prepare(work):
        write_scripts(work)
        (work / "filter").write_bytes(answers({MKDIR: errno.EPERM, MKDIRAT: errno.EPERM, CLONE3: errno.ENOSYS}))
    job.prepare = prepare
    cycle(ctx, job)


SSHD = """
ssh-keygen -q -t ed25519 -N '' -f host_key
ssh-keygen -q -t ed25519 -N '' -f user_key
cp user_key.pub authorized
cat > sshd.conf <<END
Port {port}
ListenAddress 127.0.0.1
HostKey $PWD/host_key
AuthorizedKeysFile $PWD/authorized
PidFile $PWD/pid
UsePAM no
StrictModes no
PermitRootLogin yes
END
/usr/sbin/sshd -D -f sshd.conf -E log &
server=$!
until grep -q listening log 2> /dev/null; do sleep 0.05; done
test "$(ssh -p {port} -i user_key -F /dev/null -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \\
  -o BatchMode=yes 127.0.0.1 'echo there')" = there
kill -TERM $server
wait $server || true
echo ok
"""


@test("sandboxes/sshd")
def sshd(ctx):
    """Its unprivileged process installs a filter before the user is authenticated."""
    needs("sshd", "ssh", "ssh-keygen")
    if not is_root():
        raise Skip("not root: sshd separates no privileges")
    separation = pathlib.Path("/run/sshd")  # made by its service's start, else
    made = not separation.exists()
    separation.mkdir(exist_ok=True)
    try:
        port = free_port()
        cycle(ctx, shell_job(SSHD.format(port=port), ports=(port,)))
    finally:
        if made:
            os.rmdir(separation)
