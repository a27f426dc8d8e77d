// Verifies copies of mapped files while they are used already: whoever uses them asks at the end whether they were
// good. Thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "base/result.h"
#include "base/write_behind.h"
#include "logstore/trace.h"

namespace redrive {

class CopyVerifier {
 public:
  using Verify = std::function<Result<void>(const FileRecord&)>;
  explicit CopyVerifier(Verify verify) : verify_(std::move(verify)) {}

  bool has(const FileRecord& file) const {
    const Lock lock(mutex_);
    return used_.contains({file.copy, file.size});
  }

  // A copy that is used from now on. It is verified once, on another thread.
  void add(const FileRecord& file) {
    const Lock lock(mutex_);
    if (!used_.insert({file.copy, file.size}).second) return;
    if (!worker_) worker_.emplace(kMostWaiting, [this](const FileRecord& copy) { verify(copy); });
    worker_->add(file);
  }

  // Waits until all that are used were verified. The damage that was found first, if any.
  Result<void> outcome() {
    WriteBehind<FileRecord>* worker = nullptr;
    {
      const Lock lock(mutex_);
      if (worker_) worker = &*worker_;
    }
    if (worker) worker->wait_until_idle();  // others may use more meanwhile
    const Lock lock(damage_mutex_);
    return damage_ ? Result<void>(*damage_) : Result<void>();
  }

 private:
  static constexpr size_t kMostWaiting = 4096;

  void verify(const FileRecord& copy) {
    const auto good = verify_(copy);
    const Lock lock(damage_mutex_);
    if (!good && !damage_) damage_ = good.error();
  }

  const Verify verify_;
  mutable Mutex mutex_;
  Mutex damage_mutex_;
  std::set<std::pair<std::string, uint64_t>> used_ GUARDED_BY(mutex_);  // names and sizes
  std::optional<Error> damage_ GUARDED_BY(damage_mutex_);
  std::optional<WriteBehind<FileRecord>> worker_ GUARDED_BY(mutex_);  // the last member: its thread uses the others
};

}  // namespace redrive
