// DR-MCAPI's complete graph: conjugate gradient on a dense matrix, within inverse power iteration as in NAS CG.
// usage: cg [NODES [SOLVES [UNKNOWNS]]]     UNKNOWNS: of each node. The paper's: `cg 2` to `cg 11`
// Each node multiplies its rows of the matrix, and sends its part of the product (50 bytes) to all others (in each of a
// solve's 10 steps); parts are received in the order in which they come. Checked by node 0: the residual of the last
// solve, computed from the whole matrix.
#include <math.h>
#include <string.h>

#include "nodes.h"

enum { kSteps = 10 };

struct __attribute__((packed)) Part {
  uint8_t node, step;
  double values[];
};

static int unknowns, size;  // of a node, of all
static double* own_rows;
static struct Part* outgoing;
static struct Part* incoming;
static double* early;  // parts of the next step, by node
static int early_from[kMaxNodes];

static size_t part_size(void) { return sizeof(struct Part) + (size_t)unknowns * sizeof(double); }

static double* allocate(int count) {
  double* values = calloc((size_t)count, sizeof(double));
  if (!values) die("calloc");
  return values;
}

// Symmetric, with all eigenvalues between about 2 and 4.
static double matrix_at(int row, int column) {
  const int low = row < column ? row : column, high = row < column ? column : row;
  return (row == column ? 3 : 0) + (2 * random_at((uint64_t)low, (uint64_t)high) - 1) / sqrt(size);
}

static double dot(const double* a, const double* b) {
  double sum = 0;
  for (int i = 0; i < size; i++) sum += a[i] * b[i];
  return sum;
}

// A node is at most one step ahead of another, because it needs all parts of a step for the next one.
static void receive_others(double* product, uint8_t step) {
  const size_t bytes = (size_t)unknowns * sizeof(double);
  int missing = network.count - 1;
  for (int node = 0; node < network.count; node++) {
    if (!early_from[node]) continue;
    memcpy(product + node * unknowns, early + node * unknowns, bytes);
    early_from[node] = 0;
    missing--;
  }
  while (missing > 0) {
    receive(incoming, part_size());
    const int is_early = incoming->step != step;
    memcpy((is_early ? early : product) + incoming->node * unknowns, incoming->values, bytes);
    if (is_early)
      early_from[incoming->node] = 1;
    else
      missing--;
  }
}

static void multiply(const double* vector, double* product) {
  const size_t bytes = (size_t)unknowns * sizeof(double);
  double* own = product + network.self * unknowns;
  for (int row = 0; row < unknowns; row++) own[row] = dot(own_rows + (size_t)row * (size_t)size, vector);
  outgoing->step++;
  memcpy(outgoing->values, own, bytes);
  send_to_others(outgoing, part_size());
  receive_others(product, outgoing->step);
}

// x = A^-1 b, approximately: kSteps steps.
static void solve(const double* b, double* x) {
  double *residual = allocate(size), *direction = allocate(size), *product = allocate(size);
  memset(x, 0, (size_t)size * sizeof(double));
  memcpy(residual, b, (size_t)size * sizeof(double));
  memcpy(direction, b, (size_t)size * sizeof(double));
  double rho = dot(residual, residual);
  for (int step = 0; step < kSteps; step++) {
    multiply(direction, product);
    const double alpha = rho / dot(direction, product);
    for (int i = 0; i < size; i++) {
      x[i] += alpha * direction[i];
      residual[i] -= alpha * product[i];
    }
    const double next = dot(residual, residual), beta = next / rho;
    rho = next;
    for (int i = 0; i < size; i++) direction[i] = residual[i] + beta * direction[i];
  }
  free(residual), free(direction), free(product);
}

static double residual_of(const double* b, const double* x) {
  double sum = 0;
  for (int row = 0; row < size; row++) {
    double difference = b[row];
    for (int column = 0; column < size; column++) difference -= matrix_at(row, column) * x[column];
    sum += difference * difference;
  }
  return sqrt(sum / dot(b, b));
}

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 4, solves = argc > 2 ? atoi(argv[2]) : 1;
  unknowns = argc > 3 ? atoi(argv[3]) : 6;
  size = count * unknowns;
  if (count < 2 || count > kMaxNodes || solves < 1 || unknowns < 1) {
    fprintf(stderr, "usage: cg [NODES [SOLVES [UNKNOWNS]]]\n");
    return 2;
  }
  start_nodes(count);
  own_rows = allocate(unknowns * size);
  for (int row = 0; row < unknowns; row++) {
    for (int column = 0; column < size; column++)
      own_rows[(size_t)row * (size_t)size + (size_t)column] = matrix_at(network.self * unknowns + row, column);
  }
  outgoing = malloc(part_size());
  incoming = malloc(part_size());
  *outgoing = (struct Part){(uint8_t)network.self, 0};
  early = allocate(size);
  double *b = allocate(size), *x = allocate(size);
  for (int i = 0; i < size; i++) x[i] = 1;
  for (int i = 0; i < solves; i++) {
    const double length = sqrt(dot(x, x));
    for (int k = 0; k < size; k++) b[k] = x[k] / length;
    solve(b, x);
  }
  const int ended_well = end_nodes(1);
  const double residual = residual_of(b, x);
  const int good = ended_well && residual < 1e-5;
  printf("%s eigenvalue %.6f, residual %.1e\n", good ? "ok" : "WRONG", 1 / dot(b, x), residual);
  return good ? 0 : 1;
}
