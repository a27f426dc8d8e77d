// DR-MCAPI's binary tree: tridiagonal systems of equations are solved by condensing them from the leaves to the root.
// usage: bt [NODES [SYSTEMS [ROWS [nocheck]]]]     NODES: odd; ROWS: of each leaf. The paper's: `bt 3` to `bt 21`
// A leaf condenses each half of its rows into two equations for its first and last unknown, and sends each half (50
// bytes) to its parent; an inner node joins what its children send, in whatever order that comes, and sends it on. Node
// 0 finds the first and last unknown of the whole system, and checks them against those that Gauss's elimination of all
// rows gives (which takes about as long again).
#include <math.h>
#include <string.h>

#include "nodes.h"

static int systems, rows;

// The outer unknowns of consecutive rows as functions of their neighbours outside: first[0] + first[1] * before + first[2] * after,
// and so last.
struct __attribute__((packed)) Segment {
  double first[3], last[3];
};

struct __attribute__((packed)) Message {
  uint8_t node, half;
  struct Segment segment;
};

// Row i says x[i] = (x[i-1] + x[i+1]) / 2 + right_side. So every unknown depends on all right-hand sides.
static double right_side(int system, int row, int all_rows) {
  return random_at((uint64_t)system, (uint64_t)row) / all_rows;
}

static struct Segment joined(const struct Segment* left, const struct Segment* right) {
  const double scale = 1 / (1 - left->last[2] * right->first[1]);
  const double inner_last[3] = {(left->last[0] + left->last[2] * right->first[0]) * scale, left->last[1] * scale,
                                left->last[2] * right->first[2] * scale};
  struct Segment both;
  for (int i = 0; i < 3; i++) {
    const double inner_first = (i == 1 ? 0 : right->first[i]) + right->first[1] * inner_last[i];
    both.first[i] = (i == 2 ? 0 : left->first[i]) + left->first[2] * inner_first;
    both.last[i] = (i == 1 ? 0 : right->last[i]) + right->last[1] * inner_last[i];
  }
  return both;
}

static struct Segment condensed(int system, int first, int end, int all_rows) {
  struct Segment all = {{0, 0, 0}, {0, 0, 0}};
  for (int row = first; row < end; row++) {
    const double side = right_side(system, row, all_rows);
    const struct Segment one = {{side, 0.5, 0.5}, {side, 0.5, 0.5}};
    all = row == first ? one : joined(&all, &one);
  }
  return all;
}

static int is_leaf(int node) { return 2 * node + 1 >= network.count; }

static int leaves_below(int node) {
  return is_leaf(node) ? 1 : leaves_below(2 * node + 1) + leaves_below(2 * node + 2);
}

static int leaves_before(int node) {
  if (node == 0) return 0;
  const int parent = (node - 1) / 2, is_right = node == 2 * parent + 2;
  return leaves_before(parent) + (is_right ? leaves_below(node - 1) : 0);
}

static void send_up(struct Segment segment, int half) {
  const struct Message message = {(uint8_t)network.self, (uint8_t)half, segment};
  send_to((network.self - 1) / 2, &message, sizeof message);
}

static void work_as_leaf(void) {
  const int all_rows = rows * leaves_below(0), first = rows * leaves_before(network.self), middle = first + rows / 2;
  for (int system = 0; system < systems; system++) {
    send_up(condensed(system, first, middle, all_rows), 0);
    send_up(condensed(system, middle, first + rows, all_rows), 1);
  }
}

// What children have sent, for all systems; one child may be ahead of the other.
struct Arrived {
  struct Segment* of[2][2];  // [child][half][system]
  int count[2][2];
};

static struct Segment joined_child(struct Arrived* arrived, int child, int system) {
  const int halves = is_leaf(2 * network.self + 1 + child) ? 2 : 1;
  while (arrived->count[child][0] <= system || (halves == 2 && arrived->count[child][1] <= system)) {
    struct Message message;
    receive(&message, sizeof message);
    const int from = message.node - (2 * network.self + 1);
    arrived->of[from][message.half][arrived->count[from][message.half]++] = message.segment;
  }
  struct Segment* const* of = arrived->of[child];
  return halves == 2 ? joined(&of[0][system], &of[1][system]) : of[0][system];
}

static void work_as_parent(struct Segment* results) {
  struct Arrived arrived;
  memset(&arrived, 0, sizeof arrived);
  for (int i = 0; i < 4; i++) arrived.of[i / 2][i % 2] = malloc((size_t)systems * sizeof(struct Segment));
  for (int system = 0; system < systems; system++) {
    const struct Segment left = joined_child(&arrived, 0, system), right = joined_child(&arrived, 1, system);
    results[system] = joined(&left, &right);
    if (network.self > 0) send_up(results[system], 0);
  }
}

// By elimination: from the last row up, then back down.
static void solve(int system, int all_rows, double* x) {
  double* factor = malloc((size_t)all_rows * sizeof(double));
  for (int row = all_rows - 1; row >= 0; row--) {
    const int last = row == all_rows - 1;
    const double scale = 1 / (1 - (last ? 0 : 0.5 * factor[row + 1]));
    factor[row] = 0.5 * scale;
    x[row] = (right_side(system, row, all_rows) + (last ? 0 : 0.5 * x[row + 1])) * scale;
  }
  for (int row = 1; row < all_rows; row++) x[row] += factor[row] * x[row - 1];
  free(factor);
}

// The largest relative error of the first and last unknowns. With nothing outside the system, the neighbours there are
// 0.
static double error_of(const struct Segment* results) {
  const int all_rows = rows * leaves_below(0);
  double *x = malloc((size_t)all_rows * sizeof(double)), error = 0;
  for (int system = 0; system < systems; system++) {
    solve(system, all_rows, x);
    error = fmax(error, fabs(results[system].first[0] / x[0] - 1));
    error = fmax(error, fabs(results[system].last[0] / x[all_rows - 1] - 1));
  }
  free(x);
  return error;
}

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 3;
  systems = argc > 2 ? atoi(argv[2]) : 5;
  rows = argc > 3 ? atoi(argv[3]) : 1000;
  if (count < 3 || count % 2 == 0 || count > kMaxNodes || systems < 1 || rows < 2) {
    fprintf(stderr, "usage: bt [NODES [SYSTEMS [ROWS [nocheck]]]]     NODES: odd\n");
    return 2;
  }
  start_nodes(count);
  struct Segment* results = malloc((size_t)systems * sizeof(struct Segment));
  if (is_leaf(network.self))
    work_as_leaf();
  else
    work_as_parent(results);
  const int ended_well = end_nodes(1);
  const double error = argc > 4 ? 0 : error_of(results);
  const int good = ended_well && error < 1e-6;
  printf("%s %d systems, error %.1e\n", good ? "ok" : "WRONG", systems, error);
  return good ? 0 : 1;
}
