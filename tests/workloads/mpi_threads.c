// MPI_THREAD_MULTIPLE: in each rank several threads exchange messages with those of the same number in the next rank,
// all at once. usage: mpi_threads THREADS ROUNDS
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kMaxThreads = 16 };

static int rank, ranks, rounds;
static struct {
  pthread_t thread;
  int number, wrong;
} workers[kMaxThreads];

// The thread's number is its messages' tag.
static void* exchange(void* argument) {
  const int number = *(int*)argument, next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  int wrong = 0;
  for (int round = 0; round < rounds; round++) {
    const uint64_t mine = (uint64_t)((rank * kMaxThreads + number) * rounds + round);
    uint64_t theirs = 0;
    MPI_Sendrecv(&mine, 1, MPI_UINT64_T, next, number, &theirs, 1, MPI_UINT64_T, previous, number, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    wrong += theirs != (uint64_t)((previous * kMaxThreads + number) * rounds + round);
  }
  workers[number].wrong = wrong;
  return NULL;
}

int main(int argc, char** argv) {
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int threads = argc > 1 ? atoi(argv[1]) : 3;
  rounds = argc > 2 ? atoi(argv[2]) : 20;
  if (provided < MPI_THREAD_MULTIPLE || threads > kMaxThreads) {
    fprintf(stderr, "no such threads\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  int wrong = 0, all_wrong = 0;
  for (int i = 0; i < threads; i++) {
    workers[i].number = i;
    if (pthread_create(&workers[i].thread, NULL, exchange, &workers[i].number)) MPI_Abort(MPI_COMM_WORLD, 1);
  }
  for (int i = 0; i < threads; i++) {
    pthread_join(workers[i].thread, NULL);
    wrong += workers[i].wrong;
  }
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%s %d threads, %d rounds\n", all_wrong ? "WRONG" : "ok", threads, rounds);
  MPI_Finalize();
  return wrong ? 1 : 0;
}
