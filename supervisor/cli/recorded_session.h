// The session of a recording: what its recorder answers to those who ask (session_server.h).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "supervisor/record/recorder.h"
#include "supervisor/session/session_server.h"

namespace redrive {

class RecordedSession {
 public:
  // Takes the name. Null, with a notice, if this host cannot offer sessions: a service must not fail for that. An error
  // if the name cannot be had.
  static Result<std::unique_ptr<RecordedSession>> claim(const std::string& name);

  // Changes the bound. Called in a thread of its own.
  using SetBound = std::function<Result<void>(double bound_s, SessionStatus& status)>;

  // The program has been launched. `status`: what does not change. The recorder must live until ended().
  Result<void> begin(Recorder& recorder, SessionStatus status, SetBound set_bound);
  // The recorder has ended.
  void ended() EXCLUDES(mutex_);
  // The trace is complete, or cannot be completed.
  void complete(int exit_status, const Result<void>& trace);

 private:
  explicit RecordedSession(std::unique_ptr<SessionServer> server) : server_(std::move(server)) {}
  Result<SessionStatus> status() EXCLUDES(mutex_);
  Result<SessionActivity> activity() EXCLUDES(mutex_);
  Result<CheckpointsTaken> checkpoint() EXCLUDES(mutex_);
  Result<WindowCut> cut_window() EXCLUDES(mutex_);
  Result<void> set_keep(double keep_s) EXCLUDES(mutex_);

  Mutex mutex_;
  Recorder* recorder_ GUARDED_BY(mutex_) = nullptr;  // null when it has ended
  SessionStatus status_ GUARDED_BY(mutex_);          // as last asked
  SetBound set_bound_;
  std::unique_ptr<SessionServer> server_;  // the last member: its thread uses the others
};

}  // namespace redrive
