// DR-MCAPI's ten nodes: bodies that attract one another, a tenth of them each node's.
// usage: tn [STEPS [BODIES [nocheck]]]     BODIES: of each node. The paper's: `tn 1` to `tn 10`
// In every step each node moves its bodies and tells all others where they are (50 bytes). Checked by node 0: the
// positions are, to the bit, those that one process computes (which takes as long again).
#include <math.h>
#include <string.h>

#include "nodes.h"

enum { kNodes = 10 };

struct __attribute__((packed)) Message {
  uint8_t node, step;
  double positions[];
};

static int bodies;  // of each node

static double* allocate(size_t count) {
  double* values = calloc(count, sizeof(double));
  if (!values) die("calloc");
  return values;
}

static double* initial_positions(void) {
  const int count = 3 * kNodes * bodies;
  double* positions = allocate((size_t)count);
  for (int i = 0; i < count; i++) positions[i] = random_at(1, (uint64_t)i);
  return positions;
}

// Moves `count` bodies from number `first`, whose velocities are given, one step; writes their new positions.
static void move(const double* positions, int first, int count, double* velocities, double* moved) {
  const double step_s = 1e-3, softening = 1e-3;
  for (int i = 0; i < count; i++) {
    const double* own = positions + 3 * (first + i);
    double force[3] = {0, 0, 0};
    for (int other = 0; other < kNodes * bodies; other++) {
      double way[3], square = softening;
      for (int axis = 0; axis < 3; axis++) {
        way[axis] = positions[3 * other + axis] - own[axis];
        square += way[axis] * way[axis];
      }
      const double weight = 1 / (square * sqrt(square));
      for (int axis = 0; axis < 3; axis++) force[axis] += weight * way[axis];
    }
    for (int axis = 0; axis < 3; axis++) {
      velocities[3 * i + axis] += step_s * force[axis];
      moved[3 * i + axis] = own[axis] + step_s * velocities[3 * i + axis];
    }
  }
}

// Receives positions after the step. Positions from nodes that are already one step ahead replace those of the step before.
static void exchange(struct Message* message, size_t size, double* positions, double* next, int* missing) {
  const size_t bytes = (size_t)(3 * bodies) * sizeof(double);
  const uint8_t step = message->step;
  memcpy(message->positions, next + 3 * network.self * bodies, bytes);
  send_to_others(message, size);
  while (missing[step % 2] > 0) {
    receive(message, size);
    memcpy((message->step == step ? next : positions) + 3 * message->node * bodies, message->positions, bytes);
    missing[message->step % 2]--;
  }
  missing[step % 2] = kNodes - 1;
}

// All positions after this many steps.
static double* simulate(int steps) {
  const size_t size = sizeof(struct Message) + (size_t)(3 * bodies) * sizeof(double);
  struct Message* message = malloc(size);
  double *positions = initial_positions(), *next = initial_positions(), *velocities = allocate((size_t)(3 * bodies));
  int missing[2] = {kNodes - 1, kNodes - 1};  // of even and odd steps
  for (int step = 0; step < steps; step++) {
    message->node = (uint8_t)network.self;
    message->step = (uint8_t)step;
    move(positions, network.self * bodies, bodies, velocities, next + 3 * network.self * bodies);
    exchange(message, size, positions, next, missing);
    double* swap = positions;
    positions = next;
    next = swap;
  }
  return positions;
}

static double* simulate_alone(int steps) {
  double *positions = initial_positions(), *next = initial_positions();
  double* velocities = allocate((size_t)(3 * kNodes * bodies));
  for (int step = 0; step < steps; step++) {
    move(positions, 0, kNodes * bodies, velocities, next);
    double* swap = positions;
    positions = next;
    next = swap;
  }
  return positions;
}

int main(int argc, char** argv) {
  const int steps = argc > 1 ? atoi(argv[1]) : 10;
  bodies = argc > 2 ? atoi(argv[2]) : 2;
  if (steps < 1 || bodies < 1) {
    fprintf(stderr, "usage: tn [STEPS [BODIES [nocheck]]]\n");
    return 2;
  }
  start_nodes(kNodes);
  const double* positions = simulate(steps);
  int good = end_nodes(1);
  const size_t bytes = (size_t)(3 * kNodes * bodies) * sizeof(double);
  if (argc <= 3) good = good && memcmp(positions, simulate_alone(steps), bytes) == 0;
  printf("%s %d bodies, %d steps\n", good ? "ok" : "WRONG", kNodes * bodies, steps);
  return good ? 0 : 1;
}
