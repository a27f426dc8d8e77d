# driven: CPython's own test_multiprocessing_fork, of Debian's package
# packages: libpython3.11-testsuite
/usr/bin/python3 -m test -q test_multiprocessing_fork > log 2>&1 || { tail -n 5 log; exit 1; }
