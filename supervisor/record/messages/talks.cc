#include "supervisor/record/messages/talks.h"

#include <algorithm>

namespace redrive {
namespace {

constexpr size_t kMostEnded = 256;  // a server may start a process for each client

UnitId sender(uint64_t key) { return static_cast<UnitId>(key >> 32); }
UnitId receiver(uint64_t key) { return static_cast<UnitId>(key); }

}  // namespace

void Talks::end(UnitId unit) {
  ended_.push_back(unit);
  if (ended_.size() < kMostEnded) return;
  std::sort(ended_.begin(), ended_.end());
  const auto has_ended = [&](UnitId one) { return std::binary_search(ended_.begin(), ended_.end(), one); };
  std::erase_if(talks_,
                [&](const auto& talk) { return has_ended(sender(talk.first)) || has_ended(receiver(talk.first)); });
  ended_.clear();
}

std::vector<Talks::Talk> Talks::all() const {
  std::vector<Talk> out;
  for (const auto& [key, talk] : talks_) out.push_back({sender(key), receiver(key), talk.messages, talk.bytes});
  std::sort(out.begin(), out.end(),
            [](const Talk& a, const Talk& b) { return std::pair(a.from, a.to) < std::pair(b.from, b.to); });
  return out;
}

}  // namespace redrive
