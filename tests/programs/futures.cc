// C++ threads: futures, atomics waited for, stop tokens, iostreams and containers, some of it addressed by hash seeds and addresses.
#include "test.h"

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <future>
#include <iostream>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <unordered_map>

int main() {
  std::vector<std::future<uint64_t>> sums;
  for (uint64_t i = 0; i < 8; i++) {
    sums.push_back(std::async(std::launch::async, [i] {
      std::vector<uint64_t> numbers(20000);
      std::iota(numbers.begin(), numbers.end(), i);
      return std::accumulate(numbers.begin(), numbers.end(), uint64_t{0});
    }));
  }
  for (uint64_t i = 0; i < 8; i++) CHECK(sums[i].get() == 20000 * i + 20000ULL * 19999 / 2);

  std::atomic<int> turn = 0;
  std::jthread other([&](const std::stop_token& stop) {
    for (int i = 0; i < 100; i++) {
      turn.wait(2 * i);
      turn++;
      turn.notify_all();
    }
    std::mutex mutex;
    std::condition_variable_any stopped;
    std::unique_lock lock(mutex);
    CHECK(!stopped.wait(lock, stop, [] { return false; }));
  });
  for (int i = 0; i < 100; i++) {
    turn++;
    turn.notify_all();
    turn.wait(2 * i + 1);
  }
  other.request_stop();
  other.join();
  CHECK(turn == 200);

  std::random_device device;
  std::unordered_map<std::string, unsigned> values;
  for (int i = 0; i < 500; i++) values[std::to_string(device())] = device();
  {
    std::ofstream out("futures.data");
    for (const auto& [key, value] : values) out << key << ' ' << value << '\n';
  }
  std::ifstream in("futures.data");
  std::string key;
  unsigned value = 0;
  size_t found = 0;
  while (in >> key >> value) found += values.at(key) == value;
  CHECK(found == values.size());
  MUST(unlink("futures.data"));
  pass_checkpoints();
  std::cout << "ok " << found << " values" << std::endl;
}
