// Threads of OpenMP meet at barriers, in critical sections, and at locks; some have more to do than others.
// build: -fopenmp
// period: 20ms
#include <omp.h>

#include <vector>

#include "test.h"

namespace {

constexpr int kRounds = 300;

// What one of the threads computes in a round.
uint64_t mixed(uint64_t value, int rounds) {
  for (int i = 0; i < rounds; i++) value = value * 6364136223846793005u + 1442695040888963407u;
  return value;
}

void check_barriers(int threads) {
  std::vector<uint64_t> values(static_cast<size_t>(threads), 1), expected = values;
#pragma omp parallel num_threads(threads)
  {
    const auto me = static_cast<size_t>(omp_get_thread_num());
    for (int round = 0; round < kRounds; round++) {
      const uint64_t neighbour = values[(me + 1) % values.size()];
#pragma omp barrier
      values[me] = mixed(values[me] ^ neighbour, round % static_cast<int>(me + 1) * 100);
#pragma omp barrier
    }
  }
  for (int round = 0; round < kRounds; round++) {
    const std::vector<uint64_t> before = expected;
    for (size_t me = 0; me < before.size(); me++) {
      expected[me] = mixed(before[me] ^ before[(me + 1) % before.size()], round % static_cast<int>(me + 1) * 100);
    }
  }
  CHECK(values == expected);
}

void check_sections(int threads) {
  omp_lock_t lock;
  omp_init_lock(&lock);
  int critical = 0, locked = 0, sum = 0;
#pragma omp parallel for num_threads(threads) schedule(dynamic) reduction(+ : sum)
  for (int i = 0; i < kRounds; i++) {
#pragma omp critical
    critical++;
    omp_set_lock(&lock);
    locked += i;
    omp_unset_lock(&lock);
    sum += i;
  }
  omp_destroy_lock(&lock);
  CHECK(critical == kRounds);
  CHECK((locked == sum && sum == kRounds * (kRounds - 1) / 2));
}

}  // namespace

int main() {
  for (const int threads : {2, 3, 4, 8}) {
    check_barriers(threads);
    check_sections(threads);
  }
  return ok("%d rounds each, up to 8 threads", kRounds);
}
