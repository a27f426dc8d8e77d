# driven: programs built with the address, leak and thread sanitizers: a leak, none, a race
# packages: gcc libc6-dev
printf '#include <stdlib.h>\nint main(int n, char** args) { char* p = malloc(100); p[0] = 1; if (n > 1) free(p); p = NULL; return 0; }\n' > leak.c
for what in address leak; do
  gcc -g -fsanitize=$what leak.c -o leak
  ./leak free
  if ./leak > out 2>&1; then false; fi
  grep -q '100 byte(s) leaked in 1 allocation' out
done
printf '#include <pthread.h>\nint x; static void* f(void* a) { x++; return a; }\nint main(void) { pthread_t t; pthread_create(&t, NULL, f, NULL); x++; pthread_join(t, NULL); return 0; }\n' > race.c
gcc -g -fsanitize=thread race.c -o race
if ./race > out 2>&1; then false; fi
grep -q 'data race' out
