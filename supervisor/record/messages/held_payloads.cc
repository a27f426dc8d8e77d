#include "supervisor/record/messages/held_payloads.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace redrive {
namespace {

Fd nameless_file(const std::string& directory) {
  Fd file(open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file) return file;
  std::string path = directory + "/held.XXXXXX";  // a file system without O_TMPFILE
  Fd named(mkostemp(path.data(), O_CLOEXEC));
  if (named) unlink(path.c_str());
  return named;
}

bool write_at(int file, std::span<const uint8_t> bytes, uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return true;
}

bool read_at(int file, std::span<uint8_t> bytes, uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t got = pread(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return true;
}

}  // namespace

std::vector<HeldPayload> HeldPayloads::add(uint64_t ticket, HeldPayload held) {
  memory_ += held.bytes.size();
  const uint64_t size = held.bytes.size();
  entries_[ticket] = {std::move(held), std::nullopt, 0, size};
  std::vector<HeldPayload> too_many;
  while (memory_ > limits_.memory && !spill()) {
    const auto oldest = entries_.lower_bound(next_in_memory_);
    memory_ -= oldest->second.size;
    too_many.push_back(std::move(oldest->second.held));
    next_in_memory_ = oldest->first + 1;
    entries_.erase(oldest);
  }
  return too_many;
}

// Puts the oldest of what is in memory into the file. False if there is no room, or it cannot be written.
bool HeldPayloads::spill() {
  if (!file_) file_ = nameless_file(directory_);
  const auto free = std::find(used_.begin(), used_.end(), size_t{0});
  const auto slot = static_cast<size_t>(free - used_.begin());
  if (!file_ || slot >= limits_.slots) return false;
  const auto first = entries_.lower_bound(next_in_memory_);
  auto last = first;
  uint64_t size = 0;
  Bytes chunk;
  for (; last != entries_.end() && size < limits_.chunk; ++last) {
    if (size > 0 && size + last->second.size > limits_.slot) break;
    const Bytes& bytes = last->second.held.bytes;
    chunk.insert(chunk.end(), bytes.begin(), bytes.end());
    size += last->second.size;
  }
  if (size > limits_.slot || !write_at(file_.get(), chunk, slot * limits_.slot)) return false;
  if (slot == used_.size()) used_.push_back(0);
  uint64_t offset = slot * limits_.slot;
  for (auto entry = first; entry != last; ++entry) {
    entry->second.slot = slot;
    entry->second.offset = offset;
    offset += entry->second.size;
    entry->second.held.bytes = {};
    ++used_[slot];
    next_in_memory_ = entry->first + 1;
  }
  memory_ -= size;
  return true;
}

std::vector<uint64_t> HeldPayloads::tickets_of(const std::function<bool(EventRef receiver)>& is_wanted) const {
  std::vector<uint64_t> found;
  for (const auto& [ticket, entry] : entries_) {
    if (is_wanted(entry.held.receiver)) found.push_back(ticket);
  }
  return found;
}

std::optional<HeldPayload> HeldPayloads::settle(const Policy::Settled& settled) {
  const auto found = entries_.find(settled.ticket);
  if (found == entries_.end()) return std::nullopt;
  Entry entry = std::move(found->second);
  entries_.erase(found);
  if (!entry.slot) memory_ -= entry.size;
  if (entry.slot) --used_[*entry.slot];
  if (!settled.keep) return std::nullopt;
  if (entry.slot) {
    entry.held.bytes.resize(entry.size);
    // If the payload is not logged, its sender is executed again, which is always right.
    if (!read_at(file_.get(), entry.held.bytes, entry.offset)) return std::nullopt;
  }
  return std::move(entry.held);
}

}  // namespace redrive
