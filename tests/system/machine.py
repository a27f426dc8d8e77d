"""A machine with systemd as its first process, for tests of what systemd does: in namespaces of its own, on a copy of this machine's files that
exists as long as the test (overlayfs). What it writes and starts is gone with it; it has a network of its own."""
import os
import pathlib

from harness import ROOT, Skip, needs
from redriving import is_root

SYSTEMD = pathlib.Path("/lib/systemd/systemd")
# What belongs to the kernel, or to devices, is the host's.
MASKED = ("systemd-sysctl.service", "systemd-modules-load.service", "systemd-binfmt.service", "proc-sys-fs-binfmt_misc.automount",
          "systemd-udevd.service", "systemd-udevd-control.socket", "systemd-udevd-kernel.socket", "systemd-udev-trigger.service",
          "dev-hugepages.mount", "dev-mqueue.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-fs-fuse-connections.mount",
          "kmod-static-nodes.service", "systemd-tmpfiles-setup-dev.service", "systemd-remount-fs.service", "systemd-random-seed.service",
          "systemd-journald-audit.socket", "systemd-update-utmp.service", "systemd-journal-flush.service", "tmp.mount")

NOT_ALLOWED = 77  # a container, for instance, may not mount all this
BOOT = """set -e
trap 'exit {not_allowed}' ERR
mount --make-rprivate /
mount -t tmpfs machine {directory}
mkdir {directory}/upper {directory}/work {directory}/root
mount -t overlay machine -o lowerdir=/,upperdir={directory}/upper,workdir={directory}/work {directory}/root
cd {directory}/root
mount --bind {repository} .{repository}
mount --bind {build} .{build}
mount -t proc proc proc
mount --bind -o ro proc/sys proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do touch dev/$device; mount --bind /dev/$device dev/$device; done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
trap - ERR
rm -rf var/lib/redrive var/log/journal
for unit in {masked}; do ln -sf /dev/null etc/systemd/system/$unit; done
make -s -C {repository} BUILD={build} DESTDIR={directory}/root install
ip link set lo up
mkdir -p {directory}/root/old
pivot_root . old
cd /
umount -l /old
exec env -i container=redrive-test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \\
  /lib/systemd/systemd --system --unit=basic.target --log-target=journal --show-status=no
"""


class Machine:
    def __init__(self, ctx):
        if not is_root():
            raise Skip("a machine of its own needs root")
        needs("unshare", "nsenter", "journalctl", "ip")
        if not SYSTEMD.exists() or "overlay" not in pathlib.Path("/proc/filesystems").read_text():
            raise Skip("no systemd or no overlayfs here")
        self.ctx = ctx
        self.init = None
        directory = ctx.directory / "machine"
        directory.mkdir()
        script = ctx.directory / "boot"
        script.write_text(BOOT.format(directory=directory, not_allowed=NOT_ALLOWED, repository=ROOT, build=ctx.options.build.resolve(), masked=" ".join(MASKED)))
        self.process = ctx.start("unshare", "--pid", "--mount", "--cgroup", "--uts", "--ipc", "--net", "--fork", "--mount-proc",
                                 "--kill-child=KILL", "bash", script)
        ctx.wait_until("the machine runs", self.runs)

    def runs(self):
        if self.process.process.poll() == NOT_ALLOWED:
            raise Skip(f"no machine of its own: {self.process.output(1).partition(chr(10))[0]}")
        if self.process.process.poll() is not None:
            raise self.process.failure("the machine does not start")
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        if not children or os.path.basename(os.readlink(f"/proc/{children[0]}/exe")) != SYSTEMD.name:
            return False
        self.init = children[0]
        return self.run("systemctl is-system-running --wait").stdout.strip() in ("running", "degraded")

    def run(self, line, timeout_s=None):
        """A line that root types there."""
        return self.ctx.run("nsenter", "--target", self.init, "--all", "--wdns=/root", "env", "-i", "HOME=/root", "LANG=C.UTF-8", "TERM=dumb",
                            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "bash", "-o", "pipefail", "-c", line, timeout_s=timeout_s)

    def expect(self, line, *statuses):
        return self.ctx.expect_status(self.run(line), *(statuses or (0,))).stdout

    def wait_for(self, line):
        """Until it succeeds."""
        self.ctx.wait_until(f"success of {line}", lambda: self.run(line).status == 0)

    def end(self):
        self.process.kill()
