#include "checkpoint/stub_maker.h"

#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace redrive {
namespace {

constexpr size_t kMostTemplates = 4;  // a trace names the addresses of its tier, and could name many

}  // namespace

StubMaker& StubMaker::ours() {
  static StubMaker maker;
  return maker;
}

StubMaker::StubMaker() {
  // Signals to redrive are for its other threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

StubMaker::~StubMaker() = default;

Result<ReleasedStub> StubMaker::make(const StubTier& tier) {
  std::future<Result<ReleasedStub>> made;
  {
    const std::lock_guard lock(mutex_);
    made = orders_.emplace_back(Order{tier, {}}).made.get_future();
  }
  ordered_.notify_one();
  return made.get();
}

Result<const Stub*> StubMaker::Templates::of(const StubTier& tier) {
  const auto found = std::find_if(stubs_.begin(), stubs_.end(), [&](const auto& one) { return one.first == tier; });
  if (found != stubs_.end()) {
    std::rotate(found, found + 1, stubs_.end());
  } else {
    if (stubs_.size() == kMostTemplates) stubs_.erase(stubs_.begin());
    ASSIGN_OR_RETURN(Stub stub, Stub::spawn_template(tier));
    stubs_.emplace_back(tier, std::move(stub));
    ++made_;
  }
  return &stubs_.back().second;
}

Result<ReleasedStub> StubMaker::Templates::fork(const StubTier& tier) {
  ASSIGN_OR_RETURN(const Stub* parent, of(tier));
  auto made = parent->fork(parent->pid(), CLONE_PARENT);
  if (!made && parent->was_killed()) {
    stubs_.pop_back();
    ASSIGN_OR_RETURN(parent, of(tier));
    made = parent->fork(parent->pid(), CLONE_PARENT);
  }
  if (!made) return made.error();
  return std::move(*made).hand_over();
}

void StubMaker::work(const std::stop_token& stop) {
  Templates templates(templates_made_);
  std::unique_lock lock(mutex_);
  while (ordered_.wait(lock, stop, [&] { return !orders_.empty(); })) {
    Order order = std::move(orders_.front());
    orders_.pop_front();
    lock.unlock();
    order.made.set_value(templates.fork(order.tier));
    lock.lock();
  }
}

}  // namespace redrive
