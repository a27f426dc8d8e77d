#include "supervisor/message_store.h"

#include <sched.h>
#include <signal.h>

#include <algorithm>

namespace redrive {

Processors::Processors(int count) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  }
  for (int i = 0; i < count; ++i) free_.push_back(cpus[static_cast<size_t>(i) % cpus.size()]);
}

int Processors::take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !free_.empty(); });
  const int cpu = free_.back();
  free_.pop_back();
  return cpu;
}

void Processors::give_back(int cpu) {
  const std::lock_guard lock(mutex_);
  free_.push_back(cpu);
  changed_.notify_one();
}

MessageStore::MessageStore(std::set<EventRef> sends, std::set<EventRef> births, size_t intervals)
    : sends_(std::move(sends)), births_(std::move(births)), running_(intervals) {}

MessageStore::~MessageStore() {
  for (const auto& [event, birth] : born_) kill(birth.pid, SIGKILL);
}

void MessageStore::publish(EventRef event, Bytes payload) {
  const std::lock_guard lock(mutex_);
  payloads_[event] = std::move(payload);
  changed_.notify_all();
}

void MessageStore::publish(EventRef event, Birth birth) {
  CHECK(birth.pid > 0);
  const std::lock_guard lock(mutex_);
  born_[event] = birth;
  changed_.notify_all();
}

// The replay set is closed under dependences and they follow causality, so somebody can always go on; if all wait for
// what is not there, a recorded dependence is wrong, and waiting for ever would hide it.
bool MessageStore::wait_for(std::unique_lock<std::mutex>& lock, EventRef event) {
  const auto available = [&](EventRef e) { return payloads_.contains(e) || born_.contains(e); };
  const auto stuck = [&] {
    return awaited_.size() >= running_ && std::none_of(awaited_.begin(), awaited_.end(), available);
  };
  const auto entry = awaited_.insert(event);
  if (stuck()) changed_.notify_all();
  changed_.wait(lock, [&] { return available(event) || failed_ || stuck(); });
  failed_ |= !available(event);
  awaited_.erase(entry);
  if (failed_) changed_.notify_all();
  return available(event);
}

Result<Bytes> MessageStore::payload(const MessagePart& part) {
  std::unique_lock lock(mutex_);
  if (!wait_for(lock, part.sender)) {
    return Error{"the sender did not get to event " + std::to_string(part.sender.event) + " of unit " +
                 std::to_string(part.sender.unit)};
  }
  const Bytes& whole = payloads_.at(part.sender);
  if (part.offset > whole.size() || part.length > whole.size() - part.offset) {
    return Error{"unit " + std::to_string(part.sender.unit) + " sent a shorter message than it did when recorded"};
  }
  const auto first = whole.begin() + static_cast<ptrdiff_t>(part.offset);
  return Bytes(first, first + static_cast<ptrdiff_t>(part.length));
}

Result<Birth> MessageStore::birth(EventRef event) {
  std::unique_lock lock(mutex_);
  if (!wait_for(lock, event)) {
    return Error{"the parent, unit " + std::to_string(event.unit) + ", did not get to its fork"};
  }
  const Birth birth = born_.at(event);
  born_.erase(event);
  return birth;
}

bool MessageStore::has_payload(EventRef event) const {
  const std::lock_guard lock(mutex_);
  return payloads_.contains(event);
}

void MessageStore::interval_ended(bool failed) {
  const std::lock_guard lock(mutex_);
  --running_;
  failed_ |= failed;
  changed_.notify_all();
}

}  // namespace redrive
