// Makes stubs (stub.h) for all threads of this process: each is forked from a template, a stub that has executed
// nothing of a trace, of which there is one for each filter. A fork shares the seccomp filter of its parent. If each
// stub installed one of its own, the kernel would compile and free as many as there are stubs; Linux 6.18 locks up when
// some thousand of them are freed while another is made, because both wait for the same work queue.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/stub.h"

namespace redrive {

class StubMaker {
 public:
  // This process's; its thread begins with the first call.
  static StubMaker& ours();
  ~StubMaker();

  // A stopped stub, which the caller is to take over. May be called by any thread.
  Result<ReleasedStub> make(const StubTier& tier);
  // How many filters that has taken so far.
  size_t templates_made() const { return templates_made_; }

 private:
  struct Order {
    StubTier tier;
    std::promise<Result<ReleasedStub>> made;
  };
  // What only the thread has, because it is their tracer.
  class Templates {
   public:
    explicit Templates(std::atomic<size_t>& made) : made_(made) {}
    Result<ReleasedStub> fork(const StubTier& tier);

   private:
    // The last of the stubs from now on, made if there is none.
    Result<const Stub*> of(const StubTier& tier);

    std::vector<std::pair<StubTier, Stub>> stubs_;  // the one that was used last is the last
    std::atomic<size_t>& made_;
  };
  StubMaker();
  // What the thread does, which traces the templates: it fulfils the orders.
  void work(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any ordered_;
  std::deque<Order> orders_;  // under mutex_
  std::atomic<size_t> templates_made_ = 0;
  std::jthread thread_;  // the last member: it uses the others
};

}  // namespace redrive
