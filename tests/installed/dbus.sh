# driven: a session bus, gdbus and dbus-send, two monitors
# packages: dbus libglib2.0-bin
cat > session <<'Y'
gdbus call --session --dest org.freedesktop.DBus --object-path /org/freedesktop/DBus --method org.freedesktop.DBus.ListNames > names
grep -q org.freedesktop.DBus names
gdbus monitor --session --dest org.freedesktop.DBus > owners &
watching=$!
dbus-monitor --session > signals &
monitoring=$!
until grep -q 'int32 42' signals; do dbus-send --session --type=signal /a a.b.c int32:42; sleep 0.1; done
gdbus emit --session --object-path /a --signal a.b.c 43
kill $watching $monitoring
Y
dbus-run-session -- sh -eu session
