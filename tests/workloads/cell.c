// Cell placement by parallel simulated annealing: the cells of a circuit are put into a square of slots, wires short.
// usage: cell SIDE ROUNDS     SIDE * SIDE cells; 100 rounds at least, as the result shall be good
// In each round the slots are dealt out anew to MPI ranks; each swaps cells in its slots, as if the others' stayed
// where they are, then tells all others what changed; they take that as it comes (MPI_ANY_SOURCE). The length of a
// net's wires is half its bounding box's perimeter. Checked: every cell is in exactly one slot, all ranks have the same
// placement, the ranks' shares of its length are those that rank 0 computes, and it is less than half the length at the
// beginning.
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

enum { kNetsPerCell = 2, kMostPins = 5, kMovesPerSlot = 8, kTags = 1024 };

struct Net {
  int pins, cells[kMostPins];
};

struct Change {
  int slot, cell;
};

static int rank, ranks, side, cells, nets;
static struct Net* circuit;
static int *first_net, *nets_of;  // those of cell c are nets_of[first_net[c]] to nets_of[first_net[c + 1] - 1]
static int *slot_of, *cell_in;    // the placement, both ways

static void* allocate(size_t count, size_t size) {
  void* memory = calloc(count, size);
  if (!memory) MPI_Abort(MPI_COMM_WORLD, 1);
  return memory;
}

static void shuffle(int* numbers, int count, uint64_t* state) {
  for (int i = 0; i < count; i++) numbers[i] = i;
  for (int i = count - 1; i > 0; i--) {
    const int other = random_below(state, i + 1), swap = numbers[i];
    numbers[i] = numbers[other];
    numbers[other] = swap;
  }
}

// Each net joins cells that are neighbours in one placement, which is therefore good: cell c in slot c.
static void make_circuit(uint64_t* state) {
  circuit = allocate((size_t)nets, sizeof *circuit);
  first_net = allocate((size_t)cells + 1, sizeof(int));
  nets_of = allocate((size_t)(nets * kMostPins), sizeof(int));
  for (int n = 0; n < nets; n++) {
    const int y = random_below(state, side - 2), x = random_below(state, side - 2);
    const int pins = 2 + random_below(state, kMostPins - 1);
    int places[9];
    shuffle(places, 9, state);
    circuit[n].pins = pins;
    for (int i = 0; i < pins; i++) {
      circuit[n].cells[i] = (y + places[i] / 3) * side + x + places[i] % 3;
      first_net[circuit[n].cells[i] + 1]++;
    }
  }
  for (int c = 0; c < cells; c++) first_net[c + 1] += first_net[c];
  int* next = allocate((size_t)cells, sizeof(int));
  memcpy(next, first_net, (size_t)cells * sizeof(int));
  for (int n = 0; n < nets; n++) {
    for (int i = 0; i < circuit[n].pins; i++) nets_of[next[circuit[n].cells[i]]++] = n;
  }
  free(next);
}

static void put(int cell, int slot) {
  slot_of[cell] = slot;
  cell_in[slot] = cell;
}

static int length_of(const struct Net* net) {
  int low[2] = {side, side}, high[2] = {0, 0};
  for (int i = 0; i < net->pins; i++) {
    const int slot = slot_of[net->cells[i]], place[2] = {slot / side, slot % side};
    for (int axis = 0; axis < 2; axis++) {
      if (place[axis] < low[axis]) low[axis] = place[axis];
      if (place[axis] > high[axis]) high[axis] = place[axis];
    }
  }
  return high[0] - low[0] + high[1] - low[1];
}

static int64_t length_of_nets(int first, int end) {
  int64_t length = 0;
  for (int n = first; n < end; n++) length += length_of(&circuit[n]);
  return length;
}

// The length of the nets of two cells. A net that joins both counts twice, but a swap does not change it.
static int length_around(int cell, int other) {
  int length = 0;
  for (int i = first_net[cell]; i < first_net[cell + 1]; i++) length += length_of(&circuit[nets_of[i]]);
  for (int i = first_net[other]; i < first_net[other + 1]; i++) length += length_of(&circuit[nets_of[i]]);
  return length;
}

static void anneal(const int* slots, int count, double temperature, uint64_t* state) {
  for (int i = 0; i < count * kMovesPerSlot; i++) {
    const int slot = slots[random_below(state, count)], other_slot = slots[random_below(state, count)];
    const int cell = cell_in[slot], other = cell_in[other_slot], before = length_around(cell, other);
    put(cell, other_slot);
    put(other, slot);
    const int longer = length_around(cell, other) - before;
    const double chance = (double)(next_random(state) >> 11) / 9007199254740992.0;
    if (longer <= 0 || chance < exp(-longer / temperature)) continue;
    put(cell, slot);
    put(other, other_slot);
  }
}

// A rank may be one round ahead, so each round has a tag of its own.
static void tell_others(struct Change* own, int count, struct Change* incoming, MPI_Request* requests, int tag) {
  for (int step = 1; step < ranks; step++)
    MPI_Isend(own, 2 * count, MPI_INT, (rank + step) % ranks, tag, MPI_COMM_WORLD, &requests[step - 1]);
  for (int i = 1; i < ranks; i++) {
    MPI_Status status;
    int numbers;
    MPI_Recv(incoming, 2 * cells, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_INT, &numbers);
    for (int k = 0; k < numbers / 2; k++) put(incoming[k].cell, incoming[k].slot);
  }
  MPI_Waitall(ranks - 1, requests, MPI_STATUSES_IGNORE);
}

// Cools down from moves across the whole square to moves of a slot or less.
static void place(int rounds, uint64_t* common) {
  uint64_t own_state = 0x9e3779b97f4a7c15U * (uint64_t)(rank + 1);
  int* slots = allocate((size_t)cells, sizeof(int));
  int* before = allocate((size_t)cells, sizeof(int));
  struct Change* changes = allocate((size_t)cells, sizeof *changes);
  struct Change* incoming = allocate((size_t)cells, sizeof *incoming);
  MPI_Request* requests = allocate((size_t)ranks, sizeof *requests);
  const int first = (int)((int64_t)cells * rank / ranks), end = (int)((int64_t)cells * (rank + 1) / ranks);
  for (int round = 0; round < rounds; round++) {
    int changed = 0;
    shuffle(slots, cells, common);
    memcpy(before, cell_in, (size_t)cells * sizeof(int));
    anneal(slots + first, end - first, side * pow(0.1 / side, (double)round / rounds), &own_state);
    for (int i = first; i < end; i++) {
      if (cell_in[slots[i]] != before[slots[i]]) changes[changed++] = (struct Change){slots[i], cell_in[slots[i]]};
    }
    tell_others(changes, changed, incoming, requests, round % kTags);
  }
}

static int is_legal(void) {
  char* placed = allocate((size_t)cells, 1);
  int good = 1;
  for (int slot = 0; slot < cells; slot++) {
    const int cell = cell_in[slot];
    good = good && cell >= 0 && cell < cells && !placed[cell] && slot_of[cell] == slot;
    if (good) placed[cell] = 1;
  }
  free(placed);
  return good;
}

static int all_have_the_same(void) {
  int* of_rank_0 = allocate((size_t)cells, sizeof(int));
  if (rank == 0) memcpy(of_rank_0, cell_in, (size_t)cells * sizeof(int));
  MPI_Bcast(of_rank_0, cells, MPI_INT, 0, MPI_COMM_WORLD);
  int own = memcmp(of_rank_0, cell_in, (size_t)cells * sizeof(int)) == 0 && is_legal(), all;
  MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
  free(of_rank_0);
  return all;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  side = argc > 1 ? atoi(argv[1]) : 20;
  const int rounds = argc > 2 ? atoi(argv[2]) : 200;
  if (side < 3) {
    if (rank == 0) fprintf(stderr, "cell: SIDE must be at least 3\n");
    MPI_Finalize();
    return 2;
  }
  cells = side * side;
  nets = kNetsPerCell * cells;
  uint64_t common = 88172645463325252U;  // the same on all ranks
  make_circuit(&common);
  slot_of = allocate((size_t)cells, sizeof(int));
  cell_in = allocate((size_t)cells, sizeof(int));
  shuffle(cell_in, cells, &common);
  for (int slot = 0; slot < cells; slot++) put(cell_in[slot], slot);
  const int64_t at_first = length_of_nets(0, nets);
  place(rounds, &common);

  const int first = (int)((int64_t)nets * rank / ranks), end = (int)((int64_t)nets * (rank + 1) / ranks);
  int64_t own = length_of_nets(first, end), sum;
  MPI_Allreduce(&own, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  const int good = all_have_the_same() && sum == length_of_nets(0, nets) && sum < at_first / 2;
  if (rank == 0) printf("%s length %ld, at first %ld\n", good ? "ok" : "WRONG", sum, at_first);
  MPI_Finalize();
  return good ? 0 : 1;
}
