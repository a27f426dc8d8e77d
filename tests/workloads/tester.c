// Test generation by PODEM: input patterns that tell a circuit from one where a line is stuck at 0 or 1.
// usage: tester [NODES [GATES [CIRCUITS [BACKTRACKS]]]]     BACKTRACKS: after which a fault is given up
// Each node has a share of the faults. It sends each pattern it finds to all others; a node that receives one drops those of its faults
// that the pattern also detects, so that the order of arrival decides which patterns are searched for. Checked by node 0:
// a serial simulation of all faults with all patterns finds those detected that are said to be, and, with random
// patterns as well, none that is said to be untestable; few faults have been given up.
#include <stddef.h>
#include <string.h>

#include "nodes.h"
#include "random.h"

enum Gate { kInput, kAnd, kNand, kOr, kNor, kXor, kGateKinds };
enum Value { kZero = 1, kOne = 2, kUnknown = 3 };  // a set: which it can be
enum Verdict { kOpen, kDetected, kUntestable, kGivenUp };
enum Kind { kPattern, kVerdicts, kStop };
enum { kMostGates = 1 << 14, kLanes = 64, kRandomPatterns = 1024, kMostPercentGivenUp = 5 };

struct Message {
  uint8_t kind, node, circuit;
  uint8_t data[2 * kMostGates];  // kPattern: the inputs; kVerdicts: of the node's faults
};

// Gate g has lower numbers as inputs. Fault f: the output of gate f / 2 is stuck at f % 2; it is node f % nodes' to
// test.
static struct {
  int gates, inputs, faults;
  uint8_t kind[kMostGates], is_output[kMostGates];
  int from[kMostGates][2];
} circuit;

static uint8_t verdicts[2 * kMostGates];
static uint8_t (*patterns)[kMostGates];  // node 0's: all
static int circuit_number, pattern_count, missing_verdicts, is_stopped;
static uint64_t random_state;

static void make_circuit(int gates) {
  circuit.gates = gates;
  circuit.inputs = gates / 10 + 2;
  circuit.faults = 2 * gates;
  memset(circuit.is_output, 1, sizeof circuit.is_output);
  for (int g = circuit.inputs; g < gates; g++) {
    const int reach =
        g < gates / 3 ? g : gates / 3;  // with inputs from close by, the same lines meet again and again, and much is untestable
    circuit.kind[g] = (uint8_t)(kAnd + random_below(&random_state, kGateKinds - kAnd));
    circuit.from[g][0] = g - 1 - random_below(&random_state, reach);
    do circuit.from[g][1] = g - 1 - random_below(&random_state, reach);
    while (circuit.from[g][1] == circuit.from[g][0]);
    circuit.is_output[circuit.from[g][0]] = circuit.is_output[circuit.from[g][1]] = 0;
  }
}

static int is_inverting(int gate) { return circuit.kind[gate] == kNand || circuit.kind[gate] == kNor; }

static int inverted(int value) { return (value & kZero ? kOne : 0) | (value & kOne ? kZero : 0); }

static int output_of(int gate, const uint8_t* values) {
  const int a = values[circuit.from[gate][0]], b = values[circuit.from[gate][1]];
  int value = 0;
  switch (circuit.kind[gate]) {
    case kAnd:
    case kNand:
      value = ((a | b) & kZero) | (a & b & kOne);
      break;
    case kOr:
    case kNor:
      value = (a & b & kZero) | ((a | b) & kOne);
      break;
    case kXor:
      value = (a & b ? kZero : 0) | (a & inverted(b) ? kOne : 0);
      break;
  }
  return is_inverting(gate) ? inverted(value) : value;
}

// The circuit with and without the fault, as far as the inputs are known.
struct Pair {
  uint8_t good[kMostGates], faulty[kMostGates];
};

static void imply(struct Pair* pair, const uint8_t* inputs, int fault) {
  for (int g = 0; g < circuit.gates; g++) {
    pair->good[g] = g < circuit.inputs ? inputs[g] : (uint8_t)output_of(g, pair->good);
    pair->faulty[g] = g < circuit.inputs ? inputs[g] : (uint8_t)output_of(g, pair->faulty);
    if (g == fault / 2) pair->faulty[g] = fault % 2 ? kOne : kZero;
  }
}

static int differs(const struct Pair* pair, int gate) { return (pair->good[gate] & pair->faulty[gate]) == 0; }

static int is_detected(const struct Pair* pair) {
  for (int g = 0; g < circuit.gates; g++) {
    if (circuit.is_output[g] && differs(pair, g)) return 1;
  }
  return 0;
}

static int is_open(const struct Pair* pair, int gate) {
  return pair->good[gate] == kUnknown || pair->faulty[gate] == kUnknown;
}

// A gate that a difference has reached and may yet pass, with a way for it to an output; -1: there is none.
static int frontier(const struct Pair* pair) {
  static uint8_t leads_out[kMostGates];
  memcpy(leads_out, circuit.is_output, (size_t)circuit.gates);
  for (int g = circuit.gates - 1; g >= circuit.inputs; g--) {
    const int* from = circuit.from[g];
    if (!leads_out[g] || !is_open(pair, g)) continue;
    if (differs(pair, from[0]) || differs(pair, from[1])) return g;
    leads_out[from[0]] = leads_out[from[1]] = 1;
  }
  return -1;
}

struct Decision {
  int input, value, is_second;  // of the two values
};

static struct Decision any_open_input(const uint8_t* inputs) {
  int input = 0;
  while (inputs[input] != kUnknown) input++;
  return (struct Decision){input, kZero, 0};
}

// Goes back from a gate with unknown output to an input that helps to make it `value`.
static struct Decision trace_back(const struct Pair* pair, int gate, int value) {
  while (gate >= circuit.inputs) {
    const int* from = circuit.from[gate];
    const int next = pair->good[from[0]] == kUnknown ? from[0] : from[1], other = next == from[0] ? from[1] : from[0];
    if (is_inverting(gate) || (circuit.kind[gate] == kXor && pair->good[other] == kOne)) value = inverted(value);
    gate = next;
  }
  return (struct Decision){gate, value, 0};
}

// What to try next: first to trigger the fault, then to let the difference through a gate. If all inputs are known, input is -1.
static struct Decision decide(const struct Pair* pair, const uint8_t* inputs, int fault) {
  const int site = fault / 2;
  if (pair->good[site] == kUnknown) return trace_back(pair, site, fault % 2 ? kZero : kOne);
  const int gate = frontier(pair), is_and = circuit.kind[gate] == kAnd || circuit.kind[gate] == kNand;
  for (int i = 0; i < 2; i++) {
    if (pair->good[circuit.from[gate][i]] == kUnknown)
      return trace_back(pair, circuit.from[gate][i], is_and ? kOne : kZero);
  }
  return any_open_input(inputs);
}

static int is_hopeless(const struct Pair* pair, int fault) {
  const int site = fault / 2;
  if (pair->good[site] == kUnknown) return 0;
  return !differs(pair, site) || frontier(pair) < 0;
}

// PODEM: searches the inputs that matter. Leaves them, if they detect the fault, in `inputs`; the others are unknown.
static enum Verdict search(int fault, int backtracks, uint8_t* inputs) {
  static struct Decision decisions[kMostGates];
  static struct Pair pair;
  int depth = 0;
  memset(inputs, kUnknown, (size_t)circuit.inputs);
  for (;;) {
    imply(&pair, inputs, fault);
    if (is_detected(&pair)) return kDetected;
    if (!is_hopeless(&pair, fault)) {
      decisions[depth] = decide(&pair, inputs, fault);
      inputs[decisions[depth].input] = (uint8_t)decisions[depth].value;
      depth++;
      continue;
    }
    while (depth > 0 && decisions[depth - 1].is_second) inputs[decisions[--depth].input] = kUnknown;
    if (depth == 0) return kUntestable;
    if (backtracks-- == 0) return kGivenUp;
    struct Decision* last = &decisions[depth - 1];
    *last = (struct Decision){last->input, inverted(last->value), 1};
    inputs[last->input] = (uint8_t)last->value;
  }
}

static uint64_t word_of(int gate, const uint64_t* words) {
  const uint64_t a = words[circuit.from[gate][0]], b = words[circuit.from[gate][1]];
  switch (circuit.kind[gate]) {
    case kAnd:
      return a & b;
    case kNand:
      return ~(a & b);
    case kOr:
      return a | b;
    case kNor:
      return ~(a | b);
    default:
      return a ^ b;
  }
}

// Simulates one pattern with many faults at once: lane 0 has none, each other lane has a fault of its own.
static void drop_lanes(const uint8_t* pattern, const int* faults, int lanes) {
  static uint64_t words[kMostGates], at_zero[kMostGates], at_one[kMostGates];
  uint64_t detected = 0;
  for (int lane = 1; lane < lanes; lane++)
    (faults[lane] % 2 ? at_one : at_zero)[faults[lane] / 2] |= (uint64_t)1 << lane;
  for (int g = 0; g < circuit.gates; g++) {
    words[g] = g < circuit.inputs ? (pattern[g] == kOne ? ~(uint64_t)0 : 0) : word_of(g, words);
    words[g] = (words[g] & ~at_zero[g]) | at_one[g];
    if (circuit.is_output[g]) detected |= words[g] ^ (words[g] & 1 ? ~(uint64_t)0 : 0);
  }
  for (int lane = 1; lane < lanes; lane++) {
    at_one[faults[lane] / 2] = at_zero[faults[lane] / 2] = 0;
    if (detected >> lane & 1) verdicts[faults[lane]] = kDetected;
  }
}

// Which of the node's faults the pattern detects.
static void drop_faults(const uint8_t* pattern) {
  int faults[kLanes], lanes = 1;
  for (int f = network.self; f < circuit.faults; f += network.count) {
    if (verdicts[f] == kOpen || verdicts[f] == kGivenUp) faults[lanes++] = f;
    if (lanes == kLanes || f + network.count >= circuit.faults) {
      drop_lanes(pattern, faults, lanes);
      lanes = 1;
    }
  }
}

static void keep_pattern(const uint8_t* pattern) {
  if (network.self > 0) return;
  patterns = realloc(patterns, (size_t)(pattern_count + 1) * sizeof *patterns);
  if (!patterns) die("realloc");
  memcpy(patterns[pattern_count++], pattern, (size_t)circuit.inputs);
}

static void act_on_message(void) {
  static struct Message message;
  receive(&message, sizeof message);
  switch (message.kind) {
    case kPattern:
      if (message.circuit != (uint8_t)circuit_number) break;  // it belongs to the next circuit, from a node that has already begun that
      keep_pattern(message.data);
      drop_faults(message.data);
      break;
    case kVerdicts:
      for (int f = message.node, i = 0; f < circuit.faults; f += network.count, i++) verdicts[f] = message.data[i];
      missing_verdicts--;
      break;
    case kStop:
      is_stopped = 1;
      break;
  }
}

static void publish(uint8_t* pattern) {
  static struct Message message;
  message.kind = kPattern;
  message.circuit = (uint8_t)circuit_number;
  for (int i = 0; i < circuit.inputs; i++) {
    if (pattern[i] == kUnknown) pattern[i] = next_random(&random_state) >> 63 ? kOne : kZero;
    message.data[i] = pattern[i];
  }
  const size_t size = offsetof(struct Message, data) + (size_t)circuit.inputs;
  for (int node = 0; node < network.count; node++) {
    while (node != network.self && !send_unless_stuck(node, &message, size)) act_on_message();
  }
}

static void generate(int backtracks) {
  uint8_t pattern[kMostGates];
  for (int f = network.self; f < circuit.faults; f += network.count) {
    while (arrives_within(0)) act_on_message();
    if (verdicts[f] != kOpen) continue;
    verdicts[f] = (uint8_t)search(f, backtracks, pattern);
    if (verdicts[f] != kDetected) continue;
    publish(pattern);
    keep_pattern(pattern);
    drop_faults(pattern);
  }
}

// Node 0 collects the verdicts; the others continue to receive patterns until all have arrived.
static void finish(void) {
  static struct Message message;
  message.kind = network.self > 0 ? kVerdicts : kStop;
  message.node = (uint8_t)network.self;
  if (network.self == 0) {
    while (missing_verdicts > 0) act_on_message();
    send_to_others(&message, offsetof(struct Message, data));
    return;
  }
  size_t count = 0;
  for (int f = network.self; f < circuit.faults; f += network.count) message.data[count++] = verdicts[f];
  while (!send_unless_stuck(0, &message, offsetof(struct Message, data) + count)) act_on_message();
  while (!is_stopped) act_on_message();
}

// Simulates one fault (-1: none) with 64 patterns, one in each lane.
static void simulate(uint64_t* words, const uint64_t* inputs, int fault) {
  for (int g = 0; g < circuit.gates; g++) {
    words[g] = g < circuit.inputs ? inputs[g] : word_of(g, words);
    if (g == fault / 2 && fault >= 0) words[g] = fault % 2 ? ~(uint64_t)0 : 0;
  }
}

// Marks the faults that 64 patterns detect.
static void mark_detected(const uint64_t* inputs, uint8_t* detected) {
  static uint64_t good[kMostGates], faulty[kMostGates];
  simulate(good, inputs, -1);
  for (int f = 0; f < circuit.faults; f++) {
    if (detected[f]) continue;
    simulate(faulty, inputs, f);
    for (int g = 0; g < circuit.gates; g++) detected[f] |= circuit.is_output[g] && good[g] != faulty[g];
  }
}

static void mark_detected_by_patterns(uint8_t* detected) {
  static uint64_t inputs[kMostGates];
  for (int first = 0; first < pattern_count; first += kLanes) {
    memset(inputs, 0, sizeof inputs);
    for (int lane = 0; lane < kLanes && first + lane < pattern_count; lane++) {
      for (int i = 0; i < circuit.inputs; i++) inputs[i] |= (uint64_t)(patterns[first + lane][i] == kOne) << lane;
    }
    mark_detected(inputs, detected);
  }
}

static void mark_detected_at_random(uint8_t* detected) {
  static uint64_t inputs[kMostGates];
  for (int first = 0; first < kRandomPatterns; first += kLanes) {
    for (int i = 0; i < circuit.inputs; i++) inputs[i] = next_random(&random_state);
    mark_detected(inputs, detected);
  }
}

static int is_right(int* counts) {
  static uint8_t detected[2 * kMostGates];
  int good = 1, given_up = 0;
  memset(detected, 0, sizeof detected);
  mark_detected_by_patterns(detected);
  for (int f = 0; f < circuit.faults; f++) {
    counts[verdicts[f]]++;
    given_up += verdicts[f] == kGivenUp;
    good = good && verdicts[f] != kOpen && (verdicts[f] != kDetected || detected[f]);
  }
  mark_detected_at_random(detected);
  for (int f = 0; f < circuit.faults; f++) good = good && (verdicts[f] != kUntestable || !detected[f]);
  return good && given_up * 100 <= kMostPercentGivenUp * circuit.faults;
}

// Returns whether all is right; node 0 adds to the counts of patterns and of each verdict.
static int test_circuit(int gates, int backtracks, int* all_patterns, int* counts) {
  random_state = 0x9e3779b97f4a7c15U * (uint64_t)(circuit_number + 1);
  make_circuit(gates);
  random_state += (uint64_t)network.self;
  memset(verdicts, kOpen, sizeof verdicts);
  missing_verdicts = network.count - 1;
  pattern_count = is_stopped = 0;
  generate(backtracks);
  finish();
  *all_patterns += pattern_count;
  return network.self > 0 || is_right(counts);
}

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 4, gates = argc > 2 ? atoi(argv[2]) : 500;
  const int circuits = argc > 3 ? atoi(argv[3]) : 1, backtracks = argc > 4 ? atoi(argv[4]) : 100;
  if (count < 1 || count > kMaxNodes || gates < 10 || gates > kMostGates || circuits < 1) {
    fprintf(stderr, "usage: tester [NODES [GATES [CIRCUITS [BACKTRACKS]]]]     GATES: 10 to %d\n", kMostGates);
    return 2;
  }
  start_nodes(count);
  int good = 1, all_patterns = 0, counts[4] = {0};
  for (circuit_number = 0; circuit_number < circuits; circuit_number++)
    good = test_circuit(gates, backtracks, &all_patterns, counts) && good;
  good = end_nodes(good);
  printf("%s %d patterns, %d faults detected, %d untestable, %d given up\n", good ? "ok" : "WRONG", all_patterns,
         counts[kDetected], counts[kUntestable], counts[kGivenUp]);
  return good ? 0 : 1;
}
