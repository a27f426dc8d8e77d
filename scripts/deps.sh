#!/bin/bash
# Installs the Debian packages that redrive is built with. --test: also the programs that the tests record and whatever else they use. --real: these and
# everything that tests/installed drives. --bench: those of --test, what tests/bench/servers drives, perf and matplotlib. --criu: CRIU 4.1, for
# `redrive checkpoint --format criu`, and crit. On Debian 12 that is Debian 13's, unpacked below /usr/local (scripts/criu.sh): as a package it would replace the C
# library and make the machine a Debian 13 by name. --list: only prints the packages that redrive is built with, one per line.
# If nothing is missing, it does nothing and needs neither root nor network. It leaves no daemon running that was not running before.
set -euo pipefail

packages=(build-essential pkg-config libsqlite3-dev libzstd-dev libxxhash-dev libfmt-dev libcapstone-dev libunwind-dev liblzma-dev
          libseccomp-dev libprotobuf-dev protobuf-compiler doctest-dev libcli11-dev nlohmann-json3-dev coinor-libclp-dev libsystemd-dev python3)
recorded=(openmpi-bin libopenmpi-dev mpich libmpich-dev redis-server redis-tools nginx-light apache2-utils memcached postgresql git musl-tools golang-go nodejs
          debootstrap curl jq less tmux vim bubblewrap openssh-server dbus systemd sqlite3 lmdb-utils perl xfsprogs btrfs-progs gdb
          elfutils)
packages_of() { sed -n 's/^# packages: //p' "${BASH_SOURCE%/*}/../$1"/*.sh | tr '\n' ' '; }
read -ra real <<< "$(packages_of tests/installed)"
read -ra servers <<< "$(packages_of tests/bench/servers)"
criu=(criu python3-pycriu)
debian=$(. /etc/os-release; echo "${VERSION_ID-}")
[ "$debian" = 12 ] || recorded+=("${criu[@]}")
case "${1-}" in
  '') ;;
  --criu) packages=("${criu[@]}") ;;
  --list) printf '%s\n' "${packages[@]}"; exit 0 ;;
  --test) packages+=("${recorded[@]}") ;;
  --bench) packages+=("${recorded[@]}" "${servers[@]}" linux-perf python3-matplotlib) ;;
  --real) packages+=("${recorded[@]}" "${real[@]}") ;;
  *) echo "usage: scripts/deps.sh [--test|--real|--bench|--criu|--list]" >&2; exit 2 ;;
esac

if [ "${1-}" = --criu ] && [ "$debian" = 12 ]; then
  place=/usr/local/lib/redrive-criu
  if [ -e "$place" ]; then
    echo "make deps: CRIU of Debian 13 is in $place already" >&2
    exit 0
  fi
  [ -w /usr/local/lib ] || { echo "make deps: not root: cannot unpack CRIU into $place (scripts/criu.sh DIR needs no root)" >&2; exit 1; }
  "${BASH_SOURCE%/*}/criu.sh" "$place"
  mkdir -p /usr/local/sbin
  ln -sf "$place/bin/criu" /usr/local/sbin/criu
  ln -sf "$place/bin/crit" /usr/local/bin/crit
  echo "make deps: CRIU $(< "$place/version") of Debian 13 is in $place, with its libraries; /usr/local/sbin/criu and /usr/local/bin/crit start it" >&2
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) || state=
  [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ]; then
  echo "make deps: not root, and these packages are missing: ${missing[*]}" >&2
  exit 1
fi

# A server's package starts its daemon unless policy-rc.d forbids it. One that is there already is somebody else's decision.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  trap 'exit 1' INT TERM
  printf '#!/bin/sh\nexit 101\n' > "$policy"
  chmod 755 "$policy"
fi

export DEBIAN_FRONTEND=noninteractive
install_packages() { apt-get install -y --no-install-recommends "$@"; }

apt-get update || echo 'make deps: some package lists could not be read; trying with those there are' >&2
if install_packages "${missing[@]}"; then
  [ "${1-}" != --criu ] || echo "make deps: installed ${missing[*]}" >&2
  exit 0
fi

# A Debian 12 that holds some libraries of a pinned trixie needs their -dev packages from there as well.
if grep -qsE '^[^#]*\btrixie\b' /etc/apt/sources.list /etc/apt/sources.list.d/*; then
  install_packages "${missing[@]}" libnl-3-dev/trixie libnl-route-3-dev/trixie && exit 0
fi
echo "make deps: apt-get could not install: ${missing[*]}" >&2
exit 1
