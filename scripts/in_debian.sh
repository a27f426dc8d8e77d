#!/bin/bash
# scripts/in_debian.sh SUITE build|bare COMMAND...: runs a command in a root directory of that Debian release, with the repository as /src.
# `build` has the packages that redrive is built with, `bare` almost none. A root is made with debootstrap once and kept in
# $REDRIVE_ROOTS (/var/tmp/redrive-roots), where later runs find it. Changes that a command makes are lost, except below
# /src. Needs root, debootstrap and, the first time, the network.
# The exit status is the command's; 99, with a line that says why, if the root cannot be made.
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -ge 3 ] || { echo "usage: scripts/in_debian.sh SUITE build|bare COMMAND..." >&2; exit 2; }
suite=$1 variant=$2
shift 2
unavailable() { echo "$*" >&2; exit 99; }

[ "$(id -u)" = 0 ] || unavailable "not root: cannot enter a root directory of Debian $suite"
command -v debootstrap > /dev/null || unavailable "no debootstrap here"
roots=${REDRIVE_ROOTS:-/var/tmp/redrive-roots}
mkdir -p -m 700 "$roots"
[ -O "$roots" ] || unavailable "$roots belongs to somebody else"

packages=ca-certificates
[ "$variant" = bare ] || packages=$(scripts/deps.sh --list | paste -sd,)
root=$roots/$suite-$variant-$(md5sum <<< "$packages" | cut -c1-8)
exec 9> "$root.lock"
flock 9
if [ ! -d "$root" ]; then
  rm -rf "$root.new"
  if ! debootstrap --variant=minbase --include="$packages" "$suite" "$root.new" > "$root.log" 2>&1; then
    rm -rf "$root.new"
    unavailable "debootstrap of $suite failed: $(tail -n 1 "$root.log")"
  fi
  mkdir "$root.new/src"
  mv "$root.new" "$root"
fi
flock -u 9
mkdir -p "$roots/over"

# The mounts are in a namespace of their own, and go with it.
exec unshare --mount bash -c '
  set -e
  root=$1 temporary=$2 source=$3 enter=
  shift 3
  mount -t tmpfs -o size=80% tmpfs "$temporary"
  mkdir "$temporary/upper" "$temporary/work" "$temporary/root"
  over=$temporary/root
  mount -t overlay -o "lowerdir=$root,upperdir=$temporary/upper,workdir=$temporary/work" overlay "$over"
  mount --bind "$source" "$over/src"
  mount -t proc proc "$over/proc"
  mount --rbind /sys "$over/sys"  # with its control groups
  mount --rbind /dev "$over/dev"
  mount -t tmpfs tmpfs "$over/tmp"
  cp -L /etc/resolv.conf "$over/etc/resolv.conf" 2> /dev/null || true
  cd "$over"
  mkdir -p .old
  # Not chroot, unless nothing else is allowed here: the kernel makes no user namespaces for a process in a changed root.
  if pivot_root . .old 2> /dev/null; then umount -l /.old && rmdir /.old; else enter="chroot ."; fi
  exec $enter env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TMPDIR=/tmp DEBIAN_FRONTEND=noninteractive \
    ${http_proxy:+http_proxy="$http_proxy"} sh -c "cd /src && exec \"\$@\"" sh "$@"
' bash "$root" "$roots/over" "$PWD" "$@"
