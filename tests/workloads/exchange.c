// Message exchange: keys travel between MPI ranks. In a round each key becomes another one, and goes where that one belongs.
// usage: exchange KEYS ROUNDS [WORK]     KEYS: that each rank begins with; WORK: times that a key is hashed in a round
// In each round each rank sends one message to each other one, and receives theirs as they come (MPI_ANY_SOURCE). 10000
// rounds on 4 or 8 ranks and 5000 on 16 send as many messages as MRT's. Checked: at the end each key is where it
// belongs, and their number and sum are those that every rank finds by following its first keys alone.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kTags = 1024 };  // a rank is at most one round ahead of another

struct Keys {
  uint64_t* values;
  int count, room;
};

static int rank, ranks, work;

static void make_room(struct Keys* keys, int count) {
  if (count <= keys->room) return;
  keys->room = 2 * count;
  keys->values = realloc(keys->values, (size_t)keys->room * sizeof(uint64_t));
  if (!keys->values) MPI_Abort(MPI_COMM_WORLD, 1);
}

static void add(struct Keys* keys, uint64_t key) {
  make_room(keys, keys->count + 1);
  keys->values[keys->count++] = key;
}

static uint64_t next_key(uint64_t key) {
  for (int i = 0; i < work; i++) {
    key += 0x9e3779b97f4a7c15ULL;
    key = (key ^ key >> 30) * 0xbf58476d1ce4e5b9ULL;
    key = (key ^ key >> 27) * 0x94d049bb133111ebULL;
    key ^= key >> 31;
  }
  return key;
}

static int home_of(uint64_t key) { return (int)((key >> 32) % (uint64_t)ranks); }

static uint64_t first_key(int number) { return (uint64_t)rank << 32 | (uint64_t)number; }

static void receive_from_any(struct Keys* own, int tag) {
  MPI_Status status;
  int count;
  MPI_Probe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &status);
  MPI_Get_count(&status, MPI_UINT64_T, &count);
  make_room(own, own->count + count);
  MPI_Recv(own->values + own->count, count, MPI_UINT64_T, status.MPI_SOURCE, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  own->count += count;
}

// Keys in `own` that belong elsewhere are moved to `outgoing`, by rank, and sent to their homes; keys of other ranks are received.
static void exchange(struct Keys* own, struct Keys* outgoing, MPI_Request* requests, int tag) {
  const int before = own->count;
  own->count = 0;
  for (int to = 0; to < ranks; to++) outgoing[to].count = 0;
  for (int i = 0; i < before; i++) {
    const uint64_t key = next_key(own->values[i]);
    add(home_of(key) == rank ? own : &outgoing[home_of(key)], key);
  }
  for (int step = 1; step < ranks; step++) {
    const int to = (rank + step) % ranks;
    MPI_Isend(outgoing[to].values, outgoing[to].count, MPI_UINT64_T, to, tag, MPI_COMM_WORLD, &requests[step - 1]);
  }
  for (int i = 1; i < ranks; i++) receive_from_any(own, tag);
  MPI_Waitall(ranks - 1, requests, MPI_STATUSES_IGNORE);
}

// Adds up what all ranks have: number of keys, their sum.
static void add_up(uint64_t number, uint64_t sum, uint64_t* totals) {
  const uint64_t own[2] = {number, sum};
  MPI_Allreduce(own, totals, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
}

static int is_right(const struct Keys* own, int keys, int rounds, uint64_t* totals) {
  uint64_t found = 0, expected = 0, expected_totals[2];
  int good = 1;
  for (int i = 0; i < own->count; i++) {
    found += own->values[i];
    good = good && home_of(own->values[i]) == rank;
  }
  for (int i = 0; i < keys; i++) {
    uint64_t key = first_key(i);
    for (int round = 0; round < rounds; round++) key = next_key(key);
    expected += key;
  }
  add_up((uint64_t)own->count, found, totals);
  add_up((uint64_t)keys, expected, expected_totals);
  return good && memcmp(totals, expected_totals, sizeof expected_totals) == 0;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int keys = argc > 1 ? atoi(argv[1]) : 64, rounds = argc > 2 ? atoi(argv[2]) : 1000;
  work = argc > 3 ? atoi(argv[3]) : 10;
  struct Keys own = {NULL, 0, 0};
  struct Keys* outgoing = calloc((size_t)ranks, sizeof *outgoing);
  MPI_Request* requests = malloc((size_t)ranks * sizeof *requests);
  for (int i = 0; i < keys; i++) add(&own, first_key(i));
  for (int round = 0; round < rounds; round++) exchange(&own, outgoing, requests, round % kTags);
  uint64_t totals[2];
  int own_good = is_right(&own, keys, rounds, totals), good;
  MPI_Allreduce(&own_good, &good, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
  if (rank == 0) printf("%s %lu keys, checksum %016lx\n", good ? "ok" : "WRONG", totals[0], totals[1]);
  MPI_Finalize();
  return good ? 0 : 1;
}
