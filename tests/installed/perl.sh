# driven: fork, pipes, a signal handler
# packages: perl
# quick
perl -e '$SIG{USR1}=sub{$n++}; for(1..5){ pipe(R,W); if(!fork){ kill "USR1", getppid; print W $_*2,"\n"; exit } close W; $s+=<R>; wait } die if $s!=30 || !$n'
