// Takes a snapshot of a recording whenever one of its triggers says so (record --trigger), beside the recording.
#pragma once

#include <deque>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "supervisor/record/live_control.h"
#include "supervisor/record/settings/triggers.h"

namespace redrive {

class TriggeredSnapshots {
 public:
  // `directory`: of the trace, an absolute path; snapshots are DIRECTORY.snapshot-1 and so on, without those that are
  // there; at most so many are made. The recorder whose LiveControl this is must live until end().
  TriggeredSnapshots(LiveControl& live, std::string directory, uint64_t most);
  ~TriggeredSnapshots() { end(); }
  TriggeredSnapshots(const TriggeredSnapshots&) = delete;
  TriggeredSnapshots& operator=(const TriggeredSnapshots&) = delete;

  // For the record loop. If one is being made, what happens meanwhile gets none: it is in the window of the next.
  void take(const Triggers::Happened& happened) EXCLUDES(mutex_);
  // Waits for the one that is being made.
  void end() EXCLUDES(mutex_);

 private:
  void run() EXCLUDES(mutex_);
  void make(const Triggers::Happened& happened);

  LiveControl& live_;
  const std::string directory_;
  const uint64_t most_;
  uint64_t made_ = 0;    // by this recording
  uint64_t number_ = 0;  // of the last

  Mutex mutex_;
  Condition changed_;
  std::optional<Triggers::Happened> happened_ GUARDED_BY(mutex_);
  bool ending_ GUARDED_BY(mutex_) = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace redrive
