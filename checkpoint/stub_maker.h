// Makes stubs (stub.h) for all threads of this process. Each is forked from a template: a stub that has executed
// nothing of a trace. There is one template for each filter, and a fork shares the seccomp filter of its parent. If
// each stub installed a filter of its own, the kernel would compile and free as many filters as there are stubs; Linux
// 6.18 locks up when some thousands of them are freed while another one is made, because both wait for the same work
// queue. A fork takes 0.3 ms, as spawning a stub does.
#pragma once

#include <sched.h>

#include <atomic>
#include <future>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/write_behind.h"
#include "checkpoint/stub.h"

namespace redrive {

class StubMaker {
 public:
  // The StubMaker of this process; its thread starts with the first call.
  static StubMaker& ours();

  // Makes a stopped stub, which the caller must take over. May be called by any thread.
  Result<ReleasedStub> make(const StubTier& tier);
  // How many filters have been made so far.
  size_t templates_made() const { return templates_made_; }

 private:
  struct Order {
    StubTier tier;
    cpu_set_t processors;  // of the thread that gives the order: the stub runs there, like a child of it
    std::promise<Result<ReleasedStub>> made;
  };
  StubMaker();
  // Only for the maker's own thread, because that is the tracer of the templates.
  Result<ReleasedStub> carry_out(const Order& order);
  Result<Stub> fork(const Order& order);
  // Moves the template for this filter to the end of the list; makes it if there is none.
  Result<const Stub*> template_of(const StubTier& tier);

  std::vector<std::pair<StubTier, Stub>> templates_;  // the one that was used last is at the end
  std::atomic<size_t> templates_made_ = 0;
  WriteBehind<Order> orders_;  // must be the last member: its thread uses the others
};

}  // namespace redrive
