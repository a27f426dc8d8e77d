// The collective operations of MPI, on the world and on halves of it, small and large; and a file that all ranks write
// with a shared pointer. usage: collectives ROUNDS ELEMENTS
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int good = 1;

static void expect(uint64_t found, uint64_t expected, const char* what) {
  if (found == expected) return;
  fprintf(stderr, "%s: %lu, not %lu\n", what, (unsigned long)found, (unsigned long)expected);
  good = 0;
}

// The value that rank `from` sends to rank `to`, for a place and a round.
static uint64_t number_of(int from, int to, int place, int round) {
  return (uint64_t)from * 1000003 + (uint64_t)to * 10007 + (uint64_t)place * 101 + (uint64_t)round;
}

static void gather_and_scatter(MPI_Comm comm, int rank, int ranks, int count, int round, uint64_t* out, uint64_t* in) {
  for (int i = 0; i < count; i++) out[i] = number_of(rank, 0, i, round);
  MPI_Allgather(out, count, MPI_UINT64_T, in, count, MPI_UINT64_T, comm);
  for (int r = 0; r < ranks; r++) expect(in[r * count + count - 1], number_of(r, 0, count - 1, round), "allgather");
  for (int r = 0; r < ranks; r++) {
    for (int i = 0; i < count; i++) out[r * count + i] = number_of(rank, r, i, round);
  }
  MPI_Alltoall(out, count, MPI_UINT64_T, in, count, MPI_UINT64_T, comm);
  for (int r = 0; r < ranks; r++) expect(in[r * count], number_of(r, rank, 0, round), "alltoall");
  const int root = round % ranks;
  MPI_Scatter(out, count, MPI_UINT64_T, in, count, MPI_UINT64_T, root, comm);
  expect(in[count - 1], number_of(root, rank, count - 1, round), "scatter");
  MPI_Gather(out, count, MPI_UINT64_T, in, count, MPI_UINT64_T, root, comm);
  if (rank == root) expect(in[(ranks - 1) * count], number_of(ranks - 1, 0, 0, round), "gather");
}

static void reduce_and_broadcast(MPI_Comm comm, int rank, int ranks, int count, int round, uint64_t* out,
                                 uint64_t* in) {
  const uint64_t sum = (uint64_t)ranks * (uint64_t)(ranks - 1) / 2;
  for (int i = 0; i < count; i++) out[i] = (uint64_t)rank * (uint64_t)(i + 1);
  MPI_Allreduce(out, in, count, MPI_UINT64_T, MPI_SUM, comm);
  expect(in[count - 1], sum * (uint64_t)count, "allreduce");
  MPI_Scan(out, in, count, MPI_UINT64_T, MPI_SUM, comm);
  expect(in[0], (uint64_t)rank * (uint64_t)(rank + 1) / 2, "scan");
  const int root = round % ranks;
  for (int i = 0; i < count; i++) out[i] = number_of(rank, 0, i, round);
  MPI_Bcast(out, count, MPI_UINT64_T, root, comm);
  expect(out[count / 2], number_of(root, 0, count / 2, round), "bcast");
  MPI_Request request;
  uint64_t one = 1, all = 0;
  MPI_Iallreduce(&one, &all, 1, MPI_UINT64_T, MPI_SUM, comm, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect(all, (uint64_t)ranks, "iallreduce");
  MPI_Barrier(comm);
}

// Each rank appends its number. The order is arbitrary, so only the sum can be checked.
static void write_together(MPI_Comm comm, int rank, int ranks) {
  MPI_File file;
  const char* name = "collectives.out";
  if (MPI_File_open(comm, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) != MPI_SUCCESS) {
    expect(0, 1, "MPI_File_open");
    return;
  }
  const uint64_t number = (uint64_t)rank + 1;
  MPI_File_write_shared(file, &number, 1, MPI_UINT64_T, MPI_STATUS_IGNORE);
  MPI_File_sync(file);
  MPI_Barrier(comm);
  uint64_t sum = 0;
  for (int r = 0; r < ranks; r++) {
    uint64_t one = 0;
    MPI_File_read_at(file, r * (MPI_Offset)sizeof one, &one, 1, MPI_UINT64_T, MPI_STATUS_IGNORE);
    sum += one;
  }
  expect(sum, (uint64_t)ranks * (uint64_t)(ranks + 1) / 2, "the shared file");
  MPI_File_close(&file);
  if (rank == 0) unlink(name);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int world_rank, world_ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_ranks);
  const int rounds = argc > 1 ? atoi(argv[1]) : 6, elements = argc > 2 ? atoi(argv[2]) : 4000;
  MPI_Comm half, node;
  MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &half);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  const MPI_Comm comms[] = {MPI_COMM_WORLD, half, node};
  const size_t bytes = (size_t)elements * (size_t)world_ranks * sizeof(uint64_t);
  uint64_t *out = malloc(bytes), *in = malloc(bytes);
  for (int round = 0; round < rounds; round++) {
    const MPI_Comm comm = comms[round % 3];
    const int count = round % 2 ? elements : 1;
    int rank, ranks;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    gather_and_scatter(comm, rank, ranks, count, round, out, in);
    reduce_and_broadcast(comm, rank, ranks, count, round, out, in);
  }
  write_together(MPI_COMM_WORLD, world_rank, world_ranks);
  free(in);
  free(out);
  int all_good = 0;
  MPI_Reduce(&good, &all_good, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
  if (world_rank == 0) printf("%s %d rounds\n", all_good ? "ok" : "WRONG", rounds);
  MPI_Finalize();
  return good ? 0 : 1;
}
