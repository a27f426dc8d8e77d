#include "supervisor/message_store.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>

#include "base/check.h"

namespace redrive {
namespace {

using gate::MessageState;
using namespace std::chrono_literals;

constexpr auto kPatience = 100ms;  // then who waits looks whether what it waits for can still come

std::atomic_ref<MessageState> state(gate::Message& message) { return std::atomic_ref(message.state); }

void futex(gate::Message& message, int operation, uint32_t value, const timespec* timeout) {
  syscall(SYS_futex, &message.state, operation, value, timeout, nullptr, 0);
}

void wake(gate::Message& message) { futex(message, FUTEX_WAKE, INT_MAX, nullptr); }

}  // namespace

Result<std::unique_ptr<MessageStore>> MessageStore::make(const std::vector<NeededSend>& sends,
                                                         std::set<EventRef> births, size_t intervals) {
  std::unique_ptr<MessageStore> store(new MessageStore(std::move(births), intervals));
  if (sends.empty()) return store;
  uint64_t size = sends.size() * sizeof(gate::Message);
  for (const auto& send : sends) size += send.length;
  store->file_ = Fd(memfd_create("redrive-messages", MFD_CLOEXEC));
  if (!store->file_ || ftruncate(store->file_.get(), static_cast<off_t>(size)) != 0) {
    return errno_error("cannot make shared memory for messages");
  }
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, store->file_.get(), 0);
  if (memory == MAP_FAILED) return errno_error("cannot map shared memory for messages");
  store->memory_ = static_cast<uint8_t*>(memory);
  store->size_ = size;
  store->path_ = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(store->file_.get());
  uint64_t offset = sends.size() * sizeof(gate::Message);
  for (const auto& send : sends) {
    const uint64_t index = store->indices_.size();
    store->indices_[send.event] = index;
    gate::Message& message = store->message(index);
    message.processor = static_cast<uint32_t>(send.processor);
    message.capacity = send.length;
    message.offset = offset;
    offset += send.length;
  }
  CHECK(store->indices_.size() == sends.size());
  return store;
}

MessageStore::~MessageStore() {
  for (const auto& [event, birth] : born_) kill(birth.pid, SIGKILL);
  if (memory_) munmap(memory_, size_);
}

std::optional<uint64_t> MessageStore::index(EventRef event) const {
  const auto found = indices_.find(event);
  return found == indices_.end() ? std::nullopt : std::optional(found->second);
}

void MessageStore::publish(EventRef event, const Bytes& payload) {
  const auto place = index(event);
  if (!place) return;
  gate::Message& to = message(*place);
  to.length = payload.size();
  std::memcpy(bytes(to), payload.data(), std::min<uint64_t>(to.capacity, payload.size()));
  if (state(to).exchange(MessageState::sent) == MessageState::awaited) wake(to);
}

void MessageStore::publish(EventRef event, Birth birth) {
  CHECK(birth.pid > 0);
  const std::lock_guard lock(mutex_);
  born_[event] = std::move(birth);
  changed_.notify_all();
}

bool MessageStore::available(EventRef event) const {
  const auto place = index(event);
  return place ? state(message(*place)).load() == MessageState::sent : born_.contains(event);
}

// Everybody who waits here is to look again.
void MessageStore::wake_all() {
  changed_.notify_all();
  for (const EventRef event : awaited_) {
    if (const auto place = index(event)) wake(message(*place));
  }
}

// The replay set is closed under dependences and they follow causality, as do arrivals, so somebody can always go on;
// if all wait for what is not there, a recorded dependence is wrong, and waiting for ever would hide it.
bool MessageStore::stuck() const {
  return awaited_.size() + awaited_turns_.size() >= running_ &&
         std::none_of(awaited_.begin(), awaited_.end(), [this](EventRef event) { return available(event); }) &&
         std::none_of(awaited_turns_.begin(), awaited_turns_.end(), [this](uint64_t turn) { return is_turn(turn); });
}

bool MessageStore::wait_for(std::unique_lock<std::mutex>& lock, EventRef event) {
  const auto place = index(event);
  const auto entry = awaited_.insert(event);
  if (stuck()) wake_all();
  while (!available(event) && !failed_ && !stuck()) {
    if (!place) {
      changed_.wait_for(lock, kPatience);
      continue;
    }
    gate::Message& wanted = message(*place);
    MessageState absent = MessageState::absent;
    state(wanted).compare_exchange_strong(absent, MessageState::awaited);
    lock.unlock();
    const timespec timeout{0, std::chrono::nanoseconds(kPatience).count()};
    futex(wanted, FUTEX_WAIT, static_cast<uint32_t>(MessageState::awaited), &timeout);
    lock.lock();
  }
  failed_ |= !available(event);
  awaited_.erase(entry);
  if (failed_) wake_all();
  return available(event);
}

Result<Bytes> MessageStore::payload(const MessagePart& part) {
  std::unique_lock lock(mutex_);
  if (!wait_for(lock, part.sender)) {
    return Error{"the sender did not get to event " + std::to_string(part.sender.event) + " of unit " +
                 std::to_string(part.sender.unit)};
  }
  const gate::Message& sent = message(*index(part.sender));
  const uint64_t there = std::min(sent.length, sent.capacity);
  if (part.offset > there || part.length > there - part.offset) {
    return Error{"unit " + std::to_string(part.sender.unit) + " sent a shorter message than it did when recorded"};
  }
  const uint8_t* first = bytes(sent) + part.offset;
  return Bytes(first, first + part.length);
}

Result<Birth> MessageStore::birth(EventRef event) {
  std::unique_lock lock(mutex_);
  if (!wait_for(lock, event)) {
    return Error{"the parent, unit " + std::to_string(event.unit) + ", did not get to its fork"};
  }
  Birth birth = std::move(born_.at(event));
  born_.erase(event);
  return birth;
}

void MessageStore::keep_order_of(std::vector<uint64_t> arrivals) {
  const std::lock_guard lock(mutex_);
  turns_ = std::move(arrivals);
  std::sort(turns_.begin(), turns_.end());
}

bool MessageStore::is_turn(uint64_t arrival) const {
  return taken_.size() < turns_.size() && turns_[taken_.size()] == arrival;
}

Result<void> MessageStore::await_turn(uint64_t arrival) {
  std::unique_lock lock(mutex_);
  const auto entry = awaited_turns_.insert(arrival);
  if (stuck()) wake_all();
  while (!is_turn(arrival) && !failed_ && !stuck()) changed_.wait_for(lock, kPatience);
  failed_ |= !is_turn(arrival);
  awaited_turns_.erase(entry);
  if (failed_) wake_all();
  if (is_turn(arrival)) return {};
  return Error{"a receive that came before no. " + std::to_string(arrival) + " did not happen"};
}

void MessageStore::turn_taken(uint64_t arrival) {
  const std::lock_guard lock(mutex_);
  taken_.push_back(arrival);
  changed_.notify_all();
}

std::vector<uint64_t> MessageStore::turns_taken() const {
  const std::lock_guard lock(mutex_);
  return taken_;
}

void MessageStore::interval_stands() {
  const std::lock_guard lock(mutex_);
  --running_;
  wake_all();
}

void MessageStore::intervals_go_on(size_t count) {
  const std::lock_guard lock(mutex_);
  running_ += count;
}

void MessageStore::interval_ended(bool failed) {
  const std::lock_guard lock(mutex_);
  --running_;
  failed_ |= failed;
  wake_all();
}

}  // namespace redrive
