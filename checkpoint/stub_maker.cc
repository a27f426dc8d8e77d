#include "checkpoint/stub_maker.h"

#include <sched.h>

#include <algorithm>

namespace redrive {
namespace {

constexpr size_t kMostOrders = 64;
constexpr size_t kMostTemplates = 4;  // a trace names the addresses of its tier, and could name many

}  // namespace

StubMaker& StubMaker::ours() {
  static StubMaker maker;
  return maker;
}

StubMaker::StubMaker() : orders_(kMostOrders, [this](Order& order) { order.made.set_value(fork(order.tier)); }) {}

Result<ReleasedStub> StubMaker::make(const StubTier& tier) {
  Order order{tier, {}};
  auto made = order.made.get_future();
  orders_.add(std::move(order));
  return made.get();
}

Result<const Stub*> StubMaker::template_of(const StubTier& tier) {
  const auto found =
      std::find_if(templates_.begin(), templates_.end(), [&](const auto& one) { return one.first == tier; });
  if (found != templates_.end()) {
    std::rotate(found, found + 1, templates_.end());
  } else {
    if (templates_.size() == kMostTemplates) templates_.erase(templates_.begin());
    ASSIGN_OR_RETURN(Stub stub, Stub::spawn_template(tier));
    templates_.emplace_back(tier, std::move(stub));
    ++templates_made_;
  }
  return &templates_.back().second;
}

Result<ReleasedStub> StubMaker::fork(const StubTier& tier) {
  ASSIGN_OR_RETURN(const Stub* parent, template_of(tier));
  auto made = parent->fork(parent->pid(), CLONE_PARENT);
  if (!made) {  // somebody may have killed it, as the kernel does where memory is scarce
    templates_.pop_back();
    ASSIGN_OR_RETURN(parent, template_of(tier));
    made = parent->fork(parent->pid(), CLONE_PARENT);
  }
  if (!made) return made.error();
  return std::move(*made).hand_over();
}

}  // namespace redrive
