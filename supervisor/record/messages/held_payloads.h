// Payloads of received messages for which the policy decides later whether they are kept. They are held in memory and,
// beyond a limit, in a nameless file in the directory of the trace. Those for which there is no room there either are
// kept.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/fd.h"
#include "logstore/event.h"
#include "logstore/policy/policy.h"

namespace redrive {

struct HeldPayload {
  EventRef receiver;
  Bytes bytes;
};

class HeldPayloads {
 public:
  struct Limits {
    uint64_t memory = 64 << 20;          // bytes
    uint64_t chunk = 16 << 20;           // bytes that go into the file at once, or one payload
    uint64_t slot = uint64_t{32} << 20;  // what a chunk has of the file: at least a chunk and a payload
    size_t slots = 64;
  };
  // The file is made in `directory`, when it is needed.
  HeldPayloads(std::string directory, Limits limits) : directory_(std::move(directory)), limits_(limits) {}
  explicit HeldPayloads(std::string directory) : HeldPayloads(std::move(directory), Limits()) {}

  // Tickets ascend. Returns the payloads for which there is no room any more, the oldest first: they are to be kept.
  [[nodiscard]] std::vector<HeldPayload> add(uint64_t ticket, HeldPayload held);
  // Stops holding the payload, and returns it if it is to be kept.
  std::optional<HeldPayload> settle(const Policy::Settled& settled);
  // Tickets of payloads whose receivers are such.
  std::vector<uint64_t> tickets_of(const std::function<bool(EventRef receiver)>& is_wanted) const;

 private:
  struct Entry {
    HeldPayload held;            // without its bytes if they are in the file
    std::optional<size_t> slot;  // in the file
    uint64_t offset = 0;
    uint64_t size = 0;
  };
  bool spill();

  const std::string directory_;
  const Limits limits_;
  std::map<uint64_t, Entry> entries_;  // by ticket
  uint64_t next_in_memory_ = 0;        // no ticket before it is in memory
  uint64_t memory_ = 0;                // bytes
  Fd file_;
  std::vector<size_t> used_;  // by slot: entries that are in it
};

}  // namespace redrive
