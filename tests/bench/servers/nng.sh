# work: requests between two processes, over TCP
# packages: libnng-dev
prepare() {
  cat > a.c <<'X'
#include <nng/nng.h>
#include <nng/protocol/reqrep0/rep.h>
#include <nng/protocol/reqrep0/req.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define MUST(call) do { int e = (call); if (e) { fprintf(stderr, "%s: %s\n", #call, nng_strerror(e)); exit(1); } } while (0)
int main(int argc, char** argv) {
  nng_socket s;
  char text[32], got[32];
  size_t size;
  const int serves = argc == 4;
  MUST(serves ? nng_rep0_open(&s) : nng_req0_open(&s));
  MUST(serves ? nng_listen(s, argv[1], NULL, 0) : nng_dial(s, argv[1], NULL, 0));
  for (int i = 0; i < atoi(argv[2]); ++i) {
    snprintf(text, sizeof text, "%d", i);
    size = sizeof got;
    if (!serves) MUST(nng_send(s, text, strlen(text) + 1, 0));
    MUST(nng_recv(s, got, &size, 0));
    if (serves) MUST(nng_send(s, got, size, 0));
    else if (strcmp(text, got)) return 1;
  }
  if (serves) nng_msleep(100);
  nng_close(s);
}
X
  gcc -O1 -o a a.c -lnng
}
drive() {
  ./a tcp://127.0.0.1:$1 $((1000 * $2)) serve &
  until ./a tcp://127.0.0.1:$1 0; do sleep 0.02; done
  ./a tcp://127.0.0.1:$1 $((1000 * $2))
  wait
}
