#include "supervisor/replay/unit_messages.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "supervisor/replay/divergence.h"

namespace redrive {

Result<std::variant<Bytes, OtherContents>> UnitMessages::received(const Receive& receive) {
  std::variant<Bytes, OtherContents> received;
  Bytes& message = std::get<Bytes>(received);
  for (const auto& part : receive.parts) {
    ASSIGN_OR_RETURN(const Bytes bytes, store_.payload(part));
    const uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
    if (hash != part.hash) {
      received = OtherContents{fmt::format("a message of {} bytes from event {} of unit {} with content hash {}",
                                           part.length, part.sender.event, part.sender.unit, hex(part.hash)),
                               "content hash " + hex(hash)};
      return received;
    }
    message.insert(message.end(), bytes.begin(), bytes.end());
    const PayloadTable& payloads = store_.payloads();
    if (const auto place = payloads.index(part.sender, received_)) payloads.end_use(*place);
  }
  return received;
}

std::optional<std::vector<gate::Part>> UnitMessages::places_of(const Receive& receive) {
  std::vector<gate::Part> places;
  for (const auto& part : receive.parts) {
    const auto message = store_.payloads().index(part.sender, received_);
    if (!message) return std::nullopt;
    places.push_back({*message, part.offset, part.length, part.hash});
  }
  return places;
}

}  // namespace redrive
