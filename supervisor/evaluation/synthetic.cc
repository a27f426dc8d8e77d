// Well-known patterns of communication. A step of computation takes 0.5 to 1.5 ms. Unless the pattern has sizes of its
// own, they are log-uniform, 64 B to 16 KiB.
#include <algorithm>
#include <deque>
#include <functional>
#include <random>

#include "base/assert.h"
#include "supervisor/evaluation/execution.h"

namespace redrive {
namespace {

using What = Execution::What;

class Generator {
 public:
  explicit Generator(const SyntheticOptions& options)
      : units_(options.units), messages_(options.messages), random_(options.seed), at_ns_(units_), queues_(units_) {
    for (uint32_t unit = 0; unit < units_; ++unit) add(What::program, unit);
  }

  // Rounds on a torus: each unit computes, then sends to its four neighbours and receives from them.
  void stencil() {
    uint32_t columns = 1;
    while ((columns + 1) * (columns + 1) <= units_) ++columns;
    while (more()) {
      for (uint32_t unit = 0; unit < units_; ++unit) {
        compute(unit);
        const uint32_t neighbours[] = {unit + 1, unit + units_ - 1, unit + columns, unit + units_ - columns};
        for (const uint32_t to : neighbours) send(unit, to % units_, 4096);
      }
      for (uint32_t unit = 0; unit < units_; ++unit) receive_all(unit);
    }
  }

  // Phase s: unit u sends to u+s and receives from u-s.
  void all_to_all() {
    for (uint32_t shift = 1; more(); shift = shift + 1 < units_ ? shift + 1 : 1) {
      for (uint32_t unit = 0; unit < units_; ++unit) {
        compute(unit);
        send(unit, (unit + shift) % units_, size());
      }
      for (uint32_t unit = 0; unit < units_; ++unit) receive_all(unit);
    }
  }

  // Unit 0 answers requests of 64 B with tasks of 16 KiB; the next request carries the result.
  void master_worker() {
    const uint32_t workers = units_ - 1;
    while (more()) {
      const auto worker = static_cast<uint32_t>(1 + below(workers));
      send(worker, 0, 64);
      receive_all(0);
      at_ns_[0] += 10'000 + below(20'000);
      send(0, worker, 16384);
      receive_all(worker);
      compute(worker);
    }
  }

  // Any unit sends to any other, which receives the message when it gets to it.
  void random() {
    while (more()) {
      const auto unit = static_cast<uint32_t>(below(units_));
      compute(unit);
      receive_all(unit);
      send(unit, static_cast<uint32_t>((unit + 1 + below(units_ - 1)) % units_), size());
    }
  }

  // A token goes round: one unit works at a time.
  void ring() {
    for (uint32_t unit = 0; more(); unit = (unit + 1) % units_) {
      compute(unit);
      send(unit, (unit + 1) % units_, size());
      receive_all((unit + 1) % units_);
    }
  }

  Execution take() {
    for (uint32_t unit = 0; unit < units_; ++unit) add(What::end, unit);
    execution_.units = units_;
    return std::move(execution_);
  }

 private:
  struct Message {
    uint32_t send;
    uint64_t bytes;
  };

  bool more() const { return received_ < messages_; }
  uint64_t below(uint64_t limit) { return random_() % limit; }
  uint64_t size() {
    const uint64_t power = 6 + below(8);
    return (uint64_t{1} << power) + below(uint64_t{1} << power);
  }
  void compute(uint32_t unit) { at_ns_[unit] += 500'000 + below(1'000'000); }

  Execution::Step& add(What what, uint32_t unit) {
    Execution::Step& step = execution_.steps.emplace_back();
    step.what = what;
    step.unit = unit;
    step.at_ns = at_ns_[unit];
    return step;
  }

  void send(uint32_t unit, uint32_t to, uint64_t bytes) {
    queues_[to].push_back({static_cast<uint32_t>(execution_.steps.size()), bytes});
    add(What::send, unit).bytes = bytes;
  }

  void receive_all(uint32_t unit) {
    for (; !queues_[unit].empty() && more(); queues_[unit].pop_front()) {
      at_ns_[unit] += 1000;
      Execution::Step& step = add(What::receive, unit);
      step.message = true;
      step.bytes = queues_[unit].front().bytes;
      step.first_sender = static_cast<uint32_t>(execution_.senders.size());
      step.sender_count = 1;
      execution_.senders.push_back(queues_[unit].front().send);
      ++received_;
    }
  }

  const uint32_t units_;
  const uint64_t messages_;
  std::mt19937_64 random_;
  std::vector<uint64_t> at_ns_;
  std::vector<std::deque<Message>> queues_;
  uint64_t received_ = 0;
  Execution execution_;
};

struct Pattern {
  const char* name;
  void (Generator::*generate)();
};
constexpr Pattern kPatterns[] = {
    {"stencil", &Generator::stencil},
    {"all-to-all", &Generator::all_to_all},
    {"master-worker", &Generator::master_worker},
    {"random", &Generator::random},
    {"ring", &Generator::ring},
};

}  // namespace

const std::vector<std::string>& synthetic_patterns() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Pattern& pattern : kPatterns) names.emplace_back(pattern.name);
    return names;
  }();
  return kNames;
}

Execution make_execution(const SyntheticOptions& options) {
  ASSERT(options.units >= 2);
  const auto* pattern = std::find_if(std::begin(kPatterns), std::end(kPatterns),
                                     [&](const Pattern& known) { return options.pattern == known.name; });
  ASSERT(pattern != std::end(kPatterns));
  Generator generator(options);
  (generator.*pattern->generate)();
  return generator.take();
}

}  // namespace redrive
