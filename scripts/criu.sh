#!/bin/bash
# scripts/criu.sh DIR: unpacks CRIU and crit of Debian 13 into DIR, which must not exist, with the libraries that they need. DIR/bin/criu and DIR/bin/crit
# start them. Nothing else of the machine changes. Needs apt, python3 and the network, but not root.
# The exit status is 1, with a line that says why, if they cannot be had.
set -euo pipefail

[ $# = 1 ] || { echo "usage: scripts/criu.sh DIR" >&2; exit 2; }
mkdir "$1"
dir=$(cd "$1" && pwd)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM

# An apt of its own, for which no package is installed.
apt=$dir/apt
mkdir -p "$apt"/lists/partial "$apt"/archives/partial "$dir"/bin "$dir"/root
touch "$apt/status"
mirror=$(apt-get indextargets --format '$(SITE)' 'Origin: Debian' 2>/dev/null | head -n 1)
[ -n "$mirror" ] || { echo "criu.sh: apt has no list of Debian's packages (apt-get update)" >&2; exit 1; }
echo "deb $mirror trixie main" > "$apt/sources"
get() {
  apt-get -qq -o Dir::State="$apt" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt" -o Dir::Etc::SourceList="$apt/sources" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null -o APT::Sandbox::User="$(id -un)" "$@"
}
if ! { get update && get install --yes --no-install-recommends --download-only criu python3-pycriu; } > "$apt/log" 2>&1; then
  echo "criu.sh: CRIU of Debian 13 cannot be had: $(tail -n 1 "$apt/log")" >&2
  exit 1
fi
for package in "$apt"/archives/{criu,python3-pycriu,python3-protobuf}_*.deb "$apt"/archives/lib*.deb; do
  [[ $package == */libpython* ]] || dpkg-deb -x "$package" "$dir/root"
done
rm -rf "$apt"

# Programs are started by their own dynamic linker; crit is run by this machine's Python.
libraries=$dir/root/usr/lib/x86_64-linux-gnu
cat > "$dir/bin/criu" <<EOF
#!/bin/sh
exec '$libraries/ld-linux-x86-64.so.2' --library-path '$libraries' '$dir/root/usr/sbin/criu' "\$@"
EOF
cat > "$dir/bin/crit" <<EOF
#!/bin/sh
export PYTHONPATH='$dir/root/usr/lib/python3/dist-packages' PYTHONDONTWRITEBYTECODE=1
exec python3 -c 'from crit.__main__ import main; main()' "\$@"
EOF
chmod 755 "$dir"/bin/*
"$dir/bin/criu" --version | sed -n 's/Version: //p' > "$dir/version"
trap - EXIT
