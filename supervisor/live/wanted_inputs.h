// What calls of the past have read of their memory: paths, addresses, masks, the bytes of messages. Events do not hold
// it, so the calls are re-driven.
#pragma once

#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/mutex.h"
#include "supervisor/live/kernel_objects.h"
#include "supervisor/replay/call_watch.h"
#include "supervisor/replay/replay_set.h"

namespace redrive {

class WantedInputs final : public CallWatch {
 public:
  void want(EventRef call) { wanted_.insert(call); }
  void want(const std::optional<PastCall>& call) {
    if (call) want(call->event);
  }
  // Re-drives the intervals in which the calls are that were wanted since the last time. An Error: one of them cannot
  // be re-driven, or diverges.
  Result<void> find(const SetRun& run);

  struct Read {
    std::vector<Bytes> pieces;  // one for each argument or part of one
    Bytes payload;              // what it has sent
  };
  // What a call has read; null if it was not wanted.
  const Read* of(EventRef call) const;
  // A string that it has read: its first one, or a later one.
  std::string text(EventRef call, size_t piece = 0) const;
  // A structure at this place of what it has read.
  template <typename T>
  std::optional<T> value(EventRef call, size_t piece = 0) const {
    const Read* const read = of(call);
    if (!read || read->pieces.size() <= piece || read->pieces[piece].size() < sizeof(T)) return std::nullopt;
    T found;
    std::memcpy(&found, read->pieces[piece].data(), sizeof found);
    return found;
  }

  bool wants(EventRef call) const override { return wanted_.contains(call); }
  void see(EventRef call, const std::vector<Span>& read, const Memory& memory) override;

 private:
  std::set<EventRef> wanted_;
  mutable Mutex mutex_;
  std::map<EventRef, Read> found_ GUARDED_BY(mutex_);
};

}  // namespace redrive
