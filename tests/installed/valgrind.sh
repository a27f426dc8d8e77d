# driven: memcheck of /bin/true
# packages: valgrind
valgrind -q /bin/true
