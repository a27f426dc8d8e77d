#include "supervisor/replay/wanted_payloads.h"

namespace redrive {

Result<void> WantedPayloads::take(EventIndex done, const Read& read, const Take& take) {
  while (!waiting_.empty() && waiting_.front().receiver < done) {
    const Wanted wanted = std::move(waiting_.front());
    waiting_.pop_front();
    Bytes payload;
    for (const auto& part : wanted.parts) {
      ASSIGN_OR_RETURN(const Bytes bytes, read(part));
      payload.insert(payload.end(), bytes.begin(), bytes.end());
    }
    TRY(take(wanted.receiver, payload));
  }
  return {};
}

}  // namespace redrive
