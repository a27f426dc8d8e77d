// A thread that carries out jobs in order. Only a few jobs may wait: adding one to a full queue blocks.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "base/mutex.h"

namespace redrive {

template <typename Job>
class WriteBehind {
 public:
  WriteBehind(size_t limit, std::function<void(Job&)> carry_out)
      : limit_(limit), carry_out_(std::move(carry_out)), thread_([this] { run(); }) {}
  // Carries out the waiting jobs first.
  ~WriteBehind() {
    {
      const Lock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void add(Job job) {
    const Lock lock(mutex_);
    while (jobs_.size() >= limit_) changed_.wait(mutex_);
    jobs_.push_back(std::move(job));
    changed_.notify_all();
  }
  void wait_for_room() {
    const Lock lock(mutex_);
    while (jobs_.size() >= limit_) changed_.wait(mutex_);
  }
  bool idle() {
    const Lock lock(mutex_);
    return jobs_.empty();
  }
  void wait_until_idle() {
    const Lock lock(mutex_);
    while (!jobs_.empty()) changed_.wait(mutex_);
  }

 private:
  void run() {
    Lock lock(mutex_);
    for (;;) {
      while (!stopping_ && jobs_.empty()) changed_.wait(mutex_);
      if (jobs_.empty()) return;
      Job& job = jobs_.front();
      lock.unlock();
      carry_out_(job);
      lock.lock();
      jobs_.pop_front();
      changed_.notify_all();
    }
  }

  const size_t limit_;
  const std::function<void(Job&)> carry_out_;
  Mutex mutex_;
  Condition changed_;
  std::deque<Job> jobs_ GUARDED_BY(mutex_);  // the first is being carried out
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace redrive
