// A stencil job of N processes that communicate through TCP connections on the loopback address, and nothing else: heat on a torus of
// rows,
// halo rows sent to both neighbours in every step, a global sum passed round the ring every 50 steps.
// usage: mesh [PROCESSES [SECONDS | ITERATIONSi]]     e.g. `mesh 4 20` runs for about 20 s of wall time, `mesh 4 500i` for 500 steps
// Checks itself: heat is conserved exactly (integers), and all processes agree on the number of steps.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kWidth = 512, kRows = 256, kSumPeriod = 50 };
typedef int64_t Row[kWidth];

struct Job {
  int processes, rank;
  double seconds;    // 0: until `iterations`
  long iterations;
  int up, down;      // connections to the neighbours
};

static void die(const char* what) {
  perror(what);
  exit(1);
}

static double now_s(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static void send_all(int fd, const void* data, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = send(fd, (const char*)data + done, size - done, MSG_NOSIGNAL);
    if (n <= 0) die("send");
    done += (size_t)n;
  }
}

static void receive_all(int fd, void* data, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = recv(fd, (char*)data + done, size - done, 0);
    if (n <= 0) die("recv");
    done += (size_t)n;
  }
}

// One step of diffusion in integers: neighbours get what a cell gives away, so the sum stays the same. `outside` are the rows above
// and below as the neighbours hold them.
static void diffuse(const Row* cells, Row* next, const Row above, const Row below) {
  for (int y = 0; y < kRows; y++) {
    const int64_t* up = y ? cells[y - 1] : above;
    const int64_t* down = y + 1 < kRows ? cells[y + 1] : below;
    const int64_t* here = cells[y];
    for (int x = 0; x < kWidth; x++) {
      const int64_t left = here[(x + kWidth - 1) % kWidth], right = here[(x + 1) % kWidth];
      next[y][x] = here[x] - 4 * (here[x] >> 3) + (left >> 3) + (right >> 3) + (up[x] >> 3) + (down[x] >> 3);
    }
  }
}

static int64_t sum_of(const Row* cells) {
  int64_t sum = 0;
  for (int y = 0; y < kRows; y++) {
    for (int x = 0; x < kWidth; x++) sum += cells[y][x];
  }
  return sum;
}

struct Agreement {
  int64_t sum, stop;
};

// Goes once round the ring to add up, and once more to announce the result: rank 0 decides whether to stop.
static struct Agreement agree(const struct Job* job, int64_t own, int stop) {
  struct Agreement all = {own, stop};
  if (job->processes == 1) return all;
  if (job->rank > 0) {
    struct Agreement so_far;
    receive_all(job->up, &so_far, sizeof so_far);
    all.sum += so_far.sum;
    all.stop = so_far.stop;
  }
  send_all(job->down, &all, sizeof all);
  struct Agreement total;
  receive_all(job->up, &total, sizeof total);
  if (job->rank > 0) send_all(job->down, &total, sizeof total);
  else send_all(job->down, &total, sizeof total), receive_all(job->up, &total, sizeof total);
  return total;
}

static int run(const struct Job* job, long* steps) {
  static Row cells[kRows], next[kRows], above, below;
  for (int y = 0; y < kRows; y++) {
    for (int x = 0; x < kWidth; x++) cells[y][x] = ((job->rank * kRows + y) * 7919LL + x * 104729LL) % 1000003 * 64;
  }
  const double start_s = now_s();
  const int64_t before = agree(job, sum_of(cells), 0).sum;
  for (*steps = 0;;) {
    if (job->processes > 1) {
      send_all(job->up, cells[0], sizeof(Row));
      send_all(job->down, cells[kRows - 1], sizeof(Row));
      receive_all(job->down, below, sizeof(Row));
      receive_all(job->up, above, sizeof(Row));
    } else {
      memcpy(above, cells[kRows - 1], sizeof(Row));
      memcpy(below, cells[0], sizeof(Row));
    }
    diffuse(cells, next, above, below);
    memcpy(cells, next, sizeof cells);
    ++*steps;
    const int last = job->seconds == 0 && *steps == job->iterations;
    if (*steps % kSumPeriod != 0 && !last) continue;
    const int stop = last || (job->seconds > 0 && now_s() - start_s >= job->seconds);
    const struct Agreement all = agree(job, sum_of(cells), stop);
    if (all.sum != before) return 0;
    if (all.stop) return 1;
  }
}

static int listen_on_loopback(struct sockaddr_in* address) {
  socklen_t length = sizeof *address;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (fd < 0 || bind(fd, (struct sockaddr*)address, length) || listen(fd, 8)) die("listen");
  if (getsockname(fd, (struct sockaddr*)address, &length)) die("getsockname");
  return fd;
}

// Each connects to the one below it and accepts from the one above.
static void connect_neighbours(struct Job* job, int listener, const struct sockaddr_in* below) {
  const int one = 1;
  if (job->processes == 1) return;
  job->down = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(job->down, (const struct sockaddr*)below, sizeof *below)) die("connect");
  job->up = accept(listener, NULL, NULL);
  if (job->up < 0) die("accept");
  setsockopt(job->down, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(job->up, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

int main(int argc, char** argv) {
  struct Job job = {argc > 1 ? atoi(argv[1]) : 4, 0, 0, 0, -1, -1};
  const char* length = argc > 2 ? argv[2] : "20";
  if (strchr(length, 'i')) job.iterations = atol(length);
  else job.seconds = atof(length);
  if (job.processes < 1 || job.processes > 64 || (job.iterations <= 0 && job.seconds <= 0)) {
    fprintf(stderr, "usage: mesh [PROCESSES [SECONDS | ITERATIONSi]]\n");
    return 2;
  }
  struct sockaddr_in addresses[64];
  int listeners[64];
  for (int i = 0; i < job.processes; i++) listeners[i] = listen_on_loopback(&addresses[i]);
  pid_t children[64] = {0};
  for (int i = 1; i < job.processes; i++) {
    if ((children[i] = fork()) < 0) die("fork");
    if (children[i] == 0) {
      job.rank = i;
      break;
    }
  }
  for (int i = 0; i < job.processes; i++) {
    if (i != job.rank) close(listeners[i]);
  }
  connect_neighbours(&job, listeners[job.rank], &addresses[(job.rank + 1) % job.processes]);
  long steps = 0;
  int good = run(&job, &steps);
  if (job.rank > 0) _exit(good ? 0 : 1);
  for (int i = 1; i < job.processes; i++) {
    int status;
    if (waitpid(children[i], &status, 0) != children[i] || status != 0) good = 0;
  }
  printf("%s %d processes, %ld steps\n", good ? "ok" : "WRONG", job.processes, steps);
  return good ? 0 : 1;
}
