#include "supervisor/record/requests.h"

#include <unistd.h>

#include "supervisor/record/front/interrupts.h"

namespace redrive {
namespace {

// The signal that wakes the loop may come right before the loop sleeps, so it is sent again.
constexpr auto kWakeAgain = std::chrono::milliseconds(5);

}  // namespace

Requests::Requests() : loop_(gettid()) {}

bool Requests::ask(const std::function<void()>& request) {
  Request mine{&request};
  const Lock lock(mutex_);
  if (closed_) return false;
  requests_.push_back(&mine);
  any_ = true;
  while (mine.state == Request::waiting) {
    wake_thread(loop_);
    answered_.wait_for(mutex_, kWakeAgain);
  }
  return mine.state == Request::carried_out;
}

bool Requests::are_closed() const {
  const Lock lock(mutex_);
  return closed_;
}

void Requests::carry_out() {
  const Lock lock(mutex_);
  any_ = false;
  for (Request* request : requests_) {
    (*request->what)();
    request->state = Request::carried_out;
  }
  requests_.clear();
  answered_.notify_all();
}

void Requests::close() {
  const Lock lock(mutex_);
  closed_ = true;
  for (Request* request : requests_) request->state = Request::refused;
  requests_.clear();
  answered_.notify_all();
}

}  // namespace redrive
