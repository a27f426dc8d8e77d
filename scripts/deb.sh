#!/bin/bash
# `make deb`: $BUILD/redrive_VERSION_ARCHITECTURE.deb, for the Debian release that it is built on: `make install` below /usr. Its dependencies are the
# libraries that the program is linked with; it recommends those that it loads
# (supervisor/evaluation/linear_program.cc, supervisor/session/systemd.cc).
set -euo pipefail
cd "$(dirname "$0")/.."

build=$(realpath "$BUILD")
version=$("$build/stripped/redrive" --version | cut -d' ' -f2)
architecture=$(dpkg --print-architecture)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"
root=$stage/redrive

"$MAKE" -s install DESTDIR="$root" PREFIX=/usr ZSH_COMPLETIONS=/usr/share/zsh/vendor-completions
find "$root/usr/share/man" -type f -exec gzip -9n {} +
documents=$root/usr/share/doc/redrive
install -D -m 644 -t "$documents" README.md
gzip -9nc CHANGELOG.md > "$documents/changelog.gz"
cat > "$documents/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: redrive

Files: *
Copyright: the authors of redrive
License: Apache-2.0
 The full text is in /usr/share/common-licenses/Apache-2.0.
END

# dpkg-shlibdeps reads debian/control of the directory that it runs in.
mkdir "$stage/debian" "$root/DEBIAN"
printf 'Source: redrive\n\nPackage: redrive\nArchitecture: any\n' > "$stage/debian/control"
libraries=$(cd "$stage" && dpkg-shlibdeps -O "$root/usr/bin/redrive" | sed -n 's/^shlibs:Depends=//p')
cat > "$root/DEBIAN/control" <<END
Package: redrive
Version: $version
Architecture: $architecture
Maintainer: redrive maintainers <maintainers@users.noreply.a-seed-86e0c09d.example>
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Depends: $libraries
Recommends: coinor-libclp1, libsystemd0, dbus
Suggests: bash-completion, gdb
Section: devel
Priority: optional
Description: record a multi-process program and re-drive any part of it
 redrive records unmodified programs that consist of several processes, and
 later executes any interval of any process again, within a time that was
 chosen when recording: without starting from the beginning, and without
 running again the processes that do not matter. It needs no hardware counters
 and no privilege, and so works in virtual machines and containers.
END
dpkg-deb --root-owner-group --build "$root" "$build/redrive_${version}_$architecture.deb"
