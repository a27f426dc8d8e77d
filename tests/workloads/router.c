// Channel routing with doglegs: nets between pins above and below a channel get tracks in it, as few as can be found.
// usage: router NETS ITERATIONS     Netzer's: 131 nets
// A net is cut at its pins into segments. Constrained left-edge puts them into tracks by priorities, first those that must be above
// others. Each MPI rank rips up and routes again with some priorities changed, keeps what is not worse,
// and sends that change to another rank, which tries it too; a rank that finds a better routing than all before sends
// it to all. What arrives when decides the search (MPI_Iprobe, MPI_ANY_SOURCE). Checked by painting the routing found:
// no two nets' wires meet, and all pins are connected.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

enum Tag { kMove, kBest, kDone };
enum { kMostInMove = 4, kFree = -1 };

struct Segment {
  int net, left, right;  // columns, both within
  int above[8], aboves;  // segments that must lie above
};

struct Routing {
  int* priorities;  // of segments; any are good for a routing
  int* tracks;      // of segments, from above
  int count;        // of tracks
  int cost;         // tracks first, then what lies in the last one
};

struct Move {
  int segments, numbers[kMostInMove], priorities[kMostInMove];
};

static int rank, ranks, nets, columns, segments;
static int *top, *bottom;  // the net of each column's pins, or kFree
static struct Segment* channel;
static int* owner;  // of each track and column, while routing

static void* allocate(size_t count, size_t size) {
  void* memory = calloc(count, size);
  if (!memory) MPI_Abort(MPI_COMM_WORLD, 1);
  return memory;
}

// The next column with room for a pin of a net in a lower track; its upper pin becomes one at the top.
static int next_open(int column) {
  while (column < columns && bottom[column] != kFree) column++;
  return column;
}

static void add_pin(int column, int net) { (top[column] == kFree ? top : bottom)[column] = net; }

// Pins of a channel that can be routed: its nets lie, uncut, in tracks from above, and pins follow from that. Returns
// their number.
static int make_pins(uint64_t* state) {
  const int mean_span = columns / 8;
  int tracks = 0;
  for (int net = 0; net < nets; tracks++) {
    int column = next_open(random_below(state, mean_span));
    while (net < nets) {
      const int right = next_open(column + 1 + random_below(state, 2 * mean_span));
      if (right >= columns) break;
      add_pin(column, net);
      for (int inner = column + 1; inner < right; inner++) {
        if (random_below(state, mean_span) == 0 && bottom[inner] == kFree) add_pin(inner, net);
      }
      add_pin(right, net++);
      column = next_open(right + 1 + random_below(state, 4));
      if (column >= columns) break;
    }
  }
  for (int column = 0; column < columns; column++) {  // a pin alone may be on either side
    if (bottom[column] != kFree || random_below(state, 2) == 0) continue;
    bottom[column] = top[column];
    top[column] = kFree;
  }
  return tracks;
}

static int has_pin(int net, int column) { return top[column] == net || bottom[column] == net; }

static int ends_at(const struct Segment* segment, int column) {
  return segment->left == column || segment->right == column;
}

static void make_segments(void) {
  channel = allocate((size_t)(2 * columns), sizeof *channel);
  for (int net = 0; net < nets; net++) {
    int left = -1;
    for (int column = 0; column < columns; column++) {
      if (!has_pin(net, column)) continue;
      if (left >= 0) channel[segments++] = (struct Segment){.net = net, .left = left, .right = column};
      left = column;
    }
  }
  for (int upper = 0; upper < segments; upper++) {
    for (int lower = 0; lower < segments; lower++) {
      const struct Segment* of_top = &channel[upper];
      struct Segment* of_bottom = &channel[lower];
      const int ends[2] = {of_top->left, of_top->right};
      for (int i = 0; i < 2; i++) {
        if (top[ends[i]] == of_top->net && bottom[ends[i]] == of_bottom->net && ends_at(of_bottom, ends[i]))
          of_bottom->above[of_bottom->aboves++] = upper;
      }
    }
  }
}

static int* owners_of(int track) { return owner + (size_t)track * (size_t)columns; }

static int fits(const struct Segment* segment, int track) {
  const int* owners = owners_of(track);
  for (int column = segment->left; column <= segment->right; column++) {
    if (owners[column] != kFree && owners[column] != segment->net) return 0;
  }
  return 1;
}

static int is_ready(const struct Segment* segment, const int* tracks) {
  for (int i = 0; i < segment->aboves; i++) {
    if (tracks[segment->above[i]] == kFree) return 0;
  }
  return 1;
}

// The segment of the highest priority among those that are not in a track but whose upper neighbours are.
static int choose_segment(const struct Routing* routing) {
  int best = -1;
  for (int i = 0; i < segments; i++) {
    if (routing->tracks[i] != kFree || (best >= 0 && routing->priorities[i] <= routing->priorities[best])) continue;
    if (is_ready(&channel[i], routing->tracks)) best = i;
  }
  return best;
}

static int track_for(const struct Segment* segment, const struct Routing* routing) {
  int track = 0;
  for (int i = 0; i < segment->aboves; i++) {
    if (routing->tracks[segment->above[i]] >= track) track = routing->tracks[segment->above[i]] + 1;
  }
  while (track < routing->count && !fits(segment, track)) track++;
  return track;
}

// Fills in all but the priorities.
static void route(struct Routing* routing) {
  int in_last = 0;
  memset(routing->tracks, 0xff, (size_t)segments * sizeof(int));
  routing->count = 0;
  for (int i = 0; i < segments; i++) {
    const int number = choose_segment(routing), track = track_for(&channel[number], routing);
    if (track == routing->count) {
      memset(owners_of(track), 0xff, (size_t)columns * sizeof(int));
      routing->count++;
      in_last = 0;
    }
    routing->tracks[number] = track;
    for (int x = channel[number].left; x <= channel[number].right; x++) owners_of(track)[x] = channel[number].net;
    if (track == routing->count - 1) in_last++;
  }
  routing->cost = routing->count * segments + in_last;
}

static struct Routing make_routing(void) {
  struct Routing routing = {allocate((size_t)segments, sizeof(int)), allocate((size_t)segments, sizeof(int)), 0, 0};
  for (int i = 0; i < segments; i++) routing.priorities[i] = columns - channel[i].left;
  route(&routing);
  return routing;
}

struct Search {
  struct Routing now, trial;
  int least;  // cost that any rank is known to have found
  int next_receiver, running;
};

// Routes by the trial's priorities. Keeps the result if its cost is at most this.
static int try_trial(struct Search* search, int limit) {
  route(&search->trial);
  if (search->trial.cost > limit) return 0;
  const struct Routing swap = search->now;
  search->now = search->trial;
  search->trial = swap;
  return 1;
}

static int try_move(struct Search* search, const struct Move* move) {
  memcpy(search->trial.priorities, search->now.priorities, (size_t)segments * sizeof(int));
  for (int i = 0; i < move->segments; i++) search->trial.priorities[move->numbers[i]] = move->priorities[i];
  if (!try_trial(search, search->now.cost)) return 0;
  if (search->now.cost >= search->least) return 1;
  search->least = search->now.cost;
  for (int step = 1; step < ranks; step++)
    MPI_Send(search->now.priorities, segments, MPI_INT, (rank + step) % ranks, kBest, MPI_COMM_WORLD);
  return 1;
}

static void try_own_move(struct Search* search, uint64_t* state) {
  struct Move move = {.segments = 1 + random_below(state, kMostInMove)};
  for (int i = 0; i < move.segments; i++) {
    move.numbers[i] = random_below(state, segments);
    move.priorities[i] = random_below(state, columns);
  }
  if (!try_move(search, &move) || ranks == 1) return;
  MPI_Send(&move, sizeof move, MPI_BYTE, search->next_receiver, kMove, MPI_COMM_WORLD);
  do search->next_receiver = (search->next_receiver + 1) % ranks;
  while (search->next_receiver == rank);
}

// Once a rank has announced that it is done, it tries no more moves.
static void act_on_message(struct Search* search, const MPI_Status* status, int done) {
  struct Move move;
  const int from = status->MPI_SOURCE;
  switch (status->MPI_TAG) {
    case kMove:
      MPI_Recv(&move, sizeof move, MPI_BYTE, from, kMove, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (!done) try_move(search, &move);
      break;
    case kBest:
      MPI_Recv(search->trial.priorities, segments, MPI_INT, from, kBest, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (try_trial(search, search->now.cost - 1) && search->now.cost < search->least) search->least = search->now.cost;
      break;
    case kDone:
      MPI_Recv(NULL, 0, MPI_BYTE, from, kDone, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      search->running--;
      break;
  }
}

static struct Routing find_routing(int iterations) {
  uint64_t state = 0x9e3779b97f4a7c15U * (uint64_t)(rank + 1);
  struct Search search = {make_routing(), make_routing(), 0, (rank + 1) % ranks, ranks - 1};
  MPI_Status status;
  search.least = search.now.cost;
  for (int i = 0; i < iterations; i++) {
    int there;
    try_own_move(&search, &state);
    while (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, &status), there)
      act_on_message(&search, &status, 0);
  }
  for (int step = 1; step < ranks; step++) MPI_Send(NULL, 0, MPI_BYTE, (rank + step) % ranks, kDone, MPI_COMM_WORLD);
  while (search.running > 0) {
    MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    act_on_message(&search, &status, 1);
  }
  return search.now;
}

// Returns whether all cells were free or the net's own.
static int paint(int* cells, int from, int to, int net) {
  int good = 1;
  for (int i = from; i <= to; i++) {
    good = good && (cells[i] == kFree || cells[i] == net);
    cells[i] = net;
  }
  return good;
}

// Vertical wires of a column lead from each pin to all ends of the net's segments there. `rows`: those of the tracks
// and the two edges.
static int paint_column(const struct Routing* routing, int column, int* rows) {
  int lowest = -1, highest = routing->count + 1, good = 1;
  memset(rows, 0xff, (size_t)(routing->count + 2) * sizeof(int));
  for (int i = 0; i < segments; i++) {
    const int row = routing->tracks[i] + 1;
    if (!ends_at(&channel[i], column)) continue;
    if (channel[i].net == top[column] && row > lowest) lowest = row;
    if (channel[i].net == bottom[column] && row < highest) highest = row;
  }
  if (top[column] != kFree) good = lowest > 0 && paint(rows, 0, lowest, top[column]);
  if (bottom[column] != kFree)
    good = good && highest <= routing->count && paint(rows, highest, routing->count + 1, bottom[column]);
  return good;
}

static int is_legal(const struct Routing* routing) {
  int* cells = allocate((size_t)(routing->count * columns), sizeof(int));
  int* rows = allocate((size_t)(routing->count + 2), sizeof(int));
  int good = 1;
  memset(cells, 0xff, (size_t)(routing->count * columns) * sizeof(int));
  for (int i = 0; i < segments; i++) {
    const int track = routing->tracks[i];
    good = good && track >= 0 && track < routing->count &&
           paint(cells + track * columns, channel[i].left, channel[i].right, channel[i].net);
  }
  for (int column = 0; column < columns; column++) good = good && paint_column(routing, column, rows);
  return good;
}

// The largest number of nets that cross a column: no routing has fewer tracks.
static int density(void) {
  int most = 0;
  for (int column = 0; column < columns; column++) {
    int count = 0, last_net = kFree;  // a net's segments follow one another
    for (int i = 0; i < segments; i++) {
      if (channel[i].left > column || channel[i].right < column || channel[i].net == last_net) continue;
      last_net = channel[i].net;
      count++;
    }
    if (count > most) most = count;
  }
  return most;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  nets = argc > 1 ? atoi(argv[1]) : 131;
  const int iterations = argc > 2 ? atoi(argv[2]) : 1000;
  uint64_t state = 88172645463325252U;  // the same on all ranks
  columns = 2 * nets + 16;
  top = allocate((size_t)columns, sizeof(int));
  bottom = allocate((size_t)columns, sizeof(int));
  memset(top, 0xff, (size_t)columns * sizeof(int));
  memset(bottom, 0xff, (size_t)columns * sizeof(int));
  const int tracks = make_pins(&state);
  make_segments();
  owner = allocate((size_t)segments * (size_t)columns, sizeof(int));
  const int at_first = make_routing().count;
  const struct Routing found = find_routing(iterations);
  int costs[2] = {found.cost, -found.cost}, most[2];
  MPI_Allreduce(costs, most, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  int own = most[0] == -most[1] && is_legal(&found) && found.count >= density(), good;
  MPI_Allreduce(&own, &good, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
  if (rank == 0)
    printf("%s %d tracks, at first %d, without doglegs %d, at least %d\n", good ? "ok" : "WRONG", found.count, at_first,
           tracks, density());
  MPI_Finalize();
  return good ? 0 : 1;
}
