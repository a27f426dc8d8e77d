# driven: memcheck of a shell's pipeline, callgrind of perl
# packages: valgrind perl
set -e
valgrind -q --trace-children=yes --error-exitcode=9 sh -c 'ls -l /usr | sort | tail -n 3'
valgrind -q --tool=callgrind --callgrind-out-file=calls perl -e '$sum += $_ for 1 .. 1000; print "$sum\n"'
