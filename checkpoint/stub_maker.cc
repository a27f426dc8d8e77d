#include "checkpoint/stub_maker.h"

#include <algorithm>

namespace redrive {
namespace {

constexpr size_t kMostOrders = 64;
constexpr size_t kMostTemplates = 4;  // a trace determines the addresses of its tier, and could name many

}  // namespace

StubMaker& StubMaker::ours() {
  static StubMaker maker;
  return maker;
}

StubMaker::StubMaker() : orders_(kMostOrders, [this](Order& order) { order.made.set_value(carry_out(order)); }) {}

Result<ReleasedStub> StubMaker::make(const StubTier& tier) {
  Order order{tier, {}, {}};
  if (sched_getaffinity(0, sizeof order.processors, &order.processors) != 0) CPU_ZERO(&order.processors);
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

Result<Stub> StubMaker::fork(const Order& order) {
  ASSIGN_OR_RETURN(const Stub* parent, template_of(order.tier));
  // This fails if the set is empty or larger than the kernel's; the stub then runs where the template does.
  sched_setaffinity(parent->pid(), sizeof order.processors, &order.processors);
  return parent->fork(parent->pid(), CLONE_PARENT);
}

Result<ReleasedStub> StubMaker::carry_out(const Order& order) {
  sched_setaffinity(0, sizeof order.processors, &order.processors);
  auto made = fork(order);
  if (!made && !templates_.empty()) {  // the template may have been killed, as by the kernel for want of memory
    templates_.pop_back();
    made = fork(order);
  }
  if (!made) return made.error();
  return std::move(*made).hand_over();
}

}  // namespace redrive
