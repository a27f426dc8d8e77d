// One-sided communication between MPI ranks: each adds into, writes to and reads from the windows of the others, under
// fences, locks and post-start-complete-wait. No rank receives messages. usage: window ROUNDS [allocate]: without `allocate`,
// windows use memory that the program already has
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kCounter, kFromLeft, kFromRight, kCells };

static int rank, ranks, good = 1;

static void expect(uint64_t found, uint64_t expected, const char* what) {
  if (found == expected) return;
  fprintf(stderr, "rank %d: %s is %lu, not %lu\n", rank, what, (unsigned long)found, (unsigned long)expected);
  good = 0;
}

// Each rank puts a number to its left and to its right neighbour, between two fences.
static void put_to_neighbours(MPI_Win window, const uint64_t* cells, int round) {
  const int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
  const uint64_t mine = (uint64_t)(round * ranks + rank);
  MPI_Win_fence(0, window);
  MPI_Put(&mine, 1, MPI_UINT64_T, right, kFromLeft, 1, MPI_UINT64_T, window);
  MPI_Put(&mine, 1, MPI_UINT64_T, left, kFromRight, 1, MPI_UINT64_T, window);
  MPI_Win_fence(0, window);
  expect(cells[kFromLeft], (uint64_t)(round * ranks + left), "what came from the left");
  expect(cells[kFromRight], (uint64_t)(round * ranks + right), "what came from the right");
}

// Each rank adds to a counter of rank 0, and gets what others have added before.
static uint64_t add_to_counter(MPI_Win window, uint64_t number) {
  uint64_t before;
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
  MPI_Fetch_and_op(&number, &before, MPI_UINT64_T, 0, kCounter, MPI_SUM, window);
  MPI_Win_unlock(0, window);
  return before;
}

// Each rank reads the cells of its right neighbour, which exposes them to its left neighbour.
static void get_from_right(MPI_Win window, int round) {
  int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
  uint64_t found = 0;
  MPI_Group all, from, to;
  MPI_Win_get_group(window, &all);
  MPI_Group_incl(all, 1, &left, &to);
  MPI_Group_incl(all, 1, &right, &from);
  MPI_Win_post(to, 0, window);
  MPI_Win_start(from, 0, window);
  MPI_Get(&found, 1, MPI_UINT64_T, right, kFromLeft, 1, MPI_UINT64_T, window);
  MPI_Win_complete(window);
  MPI_Win_wait(window);
  expect(found, (uint64_t)(round * ranks + rank), "what the right neighbour holds");
  MPI_Group_free(&from);
  MPI_Group_free(&to);
  MPI_Group_free(&all);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int rounds = argc > 1 ? atoi(argv[1]) : 20;
  static uint64_t created[kCells];
  uint64_t* cells = created;
  MPI_Win window;
  if (argc > 2) {
    MPI_Win_allocate(sizeof created, sizeof *created, MPI_INFO_NULL, MPI_COMM_WORLD, &cells, &window);
    cells[kCounter] = 0;
  } else {
    MPI_Win_create(created, sizeof created, sizeof *created, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  uint64_t largest = 0;
  for (int round = 0; round < rounds; round++) {
    put_to_neighbours(window, cells, round);
    const uint64_t before = add_to_counter(window, 1);
    if (before + 1 > largest) largest = before + 1;
    get_from_right(window, round);
  }
  uint64_t most = 0;
  MPI_Allreduce(&largest, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
  expect(most, (uint64_t)(rounds * ranks), "the counter");
  MPI_Win_free(&window);
  int all_good = 0;
  MPI_Reduce(&good, &all_good, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%s %d rounds\n", all_good ? "ok" : "WRONG", rounds);
  MPI_Finalize();
  return good ? 0 : 1;
}
