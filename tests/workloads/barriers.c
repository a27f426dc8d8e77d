// Threads of OpenMP that meet at barriers, with some work between. argv: rounds, work in a round
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  if (argc != 3) return 1;
  const int rounds = atoi(argv[1]), work = atoi(argv[2]);
  long arrived = 0, early = 0;
#pragma omp parallel reduction(+ : early)
  for (int round = 1; round <= rounds; round++) {
    for (volatile int i = 0; i < work; i++) continue;
#pragma omp atomic
    arrived++;
#pragma omp barrier
    early += arrived != (long)round * omp_get_num_threads();
#pragma omp barrier
  }
  puts(early ? "WRONG: a thread passed a barrier early" : "ok");
  return early != 0;
}
