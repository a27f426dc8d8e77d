/* A message-passing job for `make demo`: four processes share a grid in stripes, relax it (Jacobi) and exchange their
   edge rows over socket pairs after every step. Takes some 20 s on one processor; the argument scales that. Prints a
   checksum. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kProcesses = 4, kColumns = 2048, kRows = 256 };

static double grid[2][kRows + 2][kColumns];

static void exchange(int fd, const double* mine, double* theirs) {
  const char* out = (const char*)mine;
  char* in = (char*)theirs;
  const size_t size = kColumns * sizeof *mine;
  for (size_t sent = 0; sent < size;) {
    const ssize_t n = write(fd, out + sent, size - sent);
    if (n <= 0) exit(1);
    sent += (size_t)n;
  }
  for (size_t got = 0; got < size;) {
    const ssize_t n = read(fd, in + got, size - got);
    if (n <= 0) exit(1);
    got += (size_t)n;
  }
}

static double relax(int steps, int above, int below) {
  for (int step = 0; step < steps; ++step) {
    double(*from)[kColumns] = grid[step % 2];
    double(*to)[kColumns] = grid[(step + 1) % 2];
    if (above >= 0) exchange(above, from[1], from[0]);
    if (below >= 0) exchange(below, from[kRows], from[kRows + 1]);
    for (int row = 1; row <= kRows; ++row) {
      for (int column = 1; column < kColumns - 1; ++column) {
        to[row][column] =
            (from[row - 1][column] + from[row + 1][column] + from[row][column - 1] + from[row][column + 1]) / 4;
      }
    }
  }
  double sum = 0;
  for (int row = 1; row <= kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) sum += grid[steps % 2][row][column];
  }
  return sum;
}

int main(int argc, char** argv) {
  const int steps = (int)(4000 * (argc > 1 ? atof(argv[1]) : 1));
  int links[kProcesses - 1][2], results[2];
  if (pipe(results) != 0) return 1;
  for (int i = 0; i < kProcesses - 1; ++i) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, links[i]) != 0) return 1;
  }
  for (int rank = 0; rank < kProcesses; ++rank) {
    if (fork() != 0) continue;
    if (rank == 0) {
      for (int column = 0; column < kColumns; ++column) grid[0][0][column] = grid[1][0][column] = 100;
    }
    const double sum = relax(steps, rank > 0 ? links[rank - 1][1] : -1, rank < kProcesses - 1 ? links[rank][0] : -1);
    return write(results[1], &sum, sizeof sum) == sizeof sum ? 0 : 1;
  }
  double total = 0, sum;
  for (int i = 0; i < kProcesses && read(results[0], &sum, sizeof sum) == sizeof sum; ++i) total += sum;
  int failed = 0, status;
  while (wait(&status) > 0) failed |= status != 0;
  printf("after %d steps the grid sums up to %.6f\n", steps, total);
  return failed;
}
