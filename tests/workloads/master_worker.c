// A master hands tasks of uneven length to any worker that is free (MPI_ANY_SOURCE, MPI_Iprobe); workers poll with
// MPI_Test. The order of results differs from run to run, and with it the digest that is printed; their sum does not,
// and is checked if TASKS is at most 200. usage: master_worker TASKS WORK [BYTES]     WORK: thousands of steps that the
// average task takes; BYTES: sent with each result
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kTask = 1, kResult = 2, kStop = 3, kMostBytes = 1 << 20 };

static struct Result {
  uint64_t task, value;
  unsigned char data[kMostBytes];
} result;
static int result_size;

static uint64_t solve(uint64_t task, int work) {
  uint64_t x = task * 2654435761u + 1;
  const int steps = work * (200 + (int)(task * 7919 % 1600));
  for (int i = 0; i < steps; i++) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
  return x;
}

static uint64_t master(int ranks, uint64_t tasks, uint64_t* sum, uint64_t* polls) {
  uint64_t next = 0, done = 0, digest = 0;
  int stopped = 0;
  for (int worker = 1; worker < ranks; worker++) {
    if (next < tasks) {
      MPI_Send(&next, 1, MPI_UINT64_T, worker, kTask, MPI_COMM_WORLD);
      next++;
    } else {
      MPI_Send(NULL, 0, MPI_UINT64_T, worker, kStop, MPI_COMM_WORLD);
      stopped++;
    }
  }
  while (done < tasks) {
    int there = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kResult, MPI_COMM_WORLD, &there, &status);
    if (!there) {
      ++*polls;
      continue;
    }
    MPI_Recv(&result, result_size, MPI_BYTE, status.MPI_SOURCE, kResult, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    done++;
    *sum += result.value;
    digest = (digest ^ result.task ^ ((uint64_t)status.MPI_SOURCE << 32)) * 0x100000001b3ULL;
    if (next < tasks) {
      MPI_Send(&next, 1, MPI_UINT64_T, status.MPI_SOURCE, kTask, MPI_COMM_WORLD);
      next++;
    } else {
      MPI_Send(NULL, 0, MPI_UINT64_T, status.MPI_SOURCE, kStop, MPI_COMM_WORLD);
      stopped++;
    }
  }
  return digest;
}

static void worker(int work) {
  for (;;) {
    uint64_t task = 0;
    MPI_Request request;
    MPI_Status status;
    int done = 0;
    MPI_Irecv(&task, 1, MPI_UINT64_T, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
    while (!done) MPI_Test(&request, &done, &status);
    if (status.MPI_TAG == kStop) return;
    result.task = task;
    result.value = solve(task, work);
    memset(result.data, (int)task, result_size - offsetof(struct Result, data));
    MPI_Send(&result, result_size, MPI_BYTE, 0, kResult, MPI_COMM_WORLD);
  }
}

int main(int argc, char** argv) {
  int rank, ranks, good = 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const uint64_t tasks = argc > 1 ? strtoull(argv[1], NULL, 10) : 100;
  const int work = argc > 2 ? atoi(argv[2]) : 1;
  const int bytes = argc > 3 ? atoi(argv[3]) : 64;
  if (bytes < 0 || bytes > kMostBytes) return 2;
  result_size = (int)offsetof(struct Result, data) + bytes;
  if (rank == 0) {
    const double start_s = MPI_Wtime();
    uint64_t sum = 0, expected = 0, polls = 0;
    const uint64_t digest = master(ranks, tasks, &sum, &polls);
    fprintf(stderr, "%.2f s, %lu unsuccessful polls\n", MPI_Wtime() - start_s, polls);
    if (tasks <= 200) {  // the check must not take as long as a long run
      for (uint64_t i = 0; i < tasks; i++) expected += solve(i, work);
      good = sum == expected;
    }
    printf("%s sum %016lx digest %016lx\n", good ? "ok" : "WRONG", sum, digest);
  } else {
    worker(work);
  }
  MPI_Finalize();
  return good ? 0 : 1;
}
