// A thread that carries out jobs in order, and no more than a few of them waiting: who adds one to a full queue waits.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace redrive {

template <typename Job>
class WriteBehind {
 public:
  WriteBehind(size_t limit, std::function<void(Job&)> carry_out)
      : limit_(limit), carry_out_(std::move(carry_out)), thread_([this] { run(); }) {}
  // Carries out what is waiting.
  ~WriteBehind() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void add(Job job) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return jobs_.size() < limit_; });
    jobs_.push_back(std::move(job));
    changed_.notify_all();
  }
  void wait_for_room() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return jobs_.size() < limit_; });
  }
  bool idle() {
    const std::lock_guard lock(mutex_);
    return jobs_.empty();
  }
  void wait_until_idle() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return jobs_.empty(); });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
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
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // the first is being carried out
  bool stopping_ = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace redrive
