// Makes stubs (stub.h) for all threads of this process: each is forked from a template, a stub that has executed
// nothing of a trace, of which there is one for each filter. A fork shares the seccomp filter of its parent. If each
// stub installed one of its own, the kernel would compile and free as many as there are stubs; Linux 6.18 locks up when
// some thousand of them are freed while another is made, because both wait for the same work queue.
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
  // This process's; its thread begins with the first call.
  static StubMaker& ours();

  // A stopped stub, which the caller is to take over. May be called by any thread.
  Result<ReleasedStub> make(const StubTier& tier);
  // How many filters that has taken so far.
  size_t templates_made() const { return templates_made_; }

 private:
  struct Order {
    StubTier tier;
    cpu_set_t processors;  // of who gives it: the stub runs there, as any child would
    std::promise<Result<ReleasedStub>> made;
  };
  StubMaker();
  // Only the thread's, because it is the tracer of the templates.
  Result<ReleasedStub> carry_out(const Order& order);
  Result<Stub> fork(const Order& order);
  // The last of the templates from now on, made if there is none.
  Result<const Stub*> template_of(const StubTier& tier);

  std::vector<std::pair<StubTier, Stub>> templates_;  // the one that was used last is the last
  std::atomic<size_t> templates_made_ = 0;
  WriteBehind<Order> orders_;  // the last member: its thread uses the others
};

}  // namespace redrive
