#include "interceptors/inprocess/replay.h"

#include <time.h>

#include "interceptors/inprocess/message_ring.h"
#include "interceptors/inprocess/spans.h"

#define XXH_INLINE_ALL
#define XXH_NO_STDLIB  // there is no malloc here
#include <xxhash.h>

// After this time, the supervisor waits, and finds out whether the sender will send at all.
extern "C" const timespec patience{0, 100'000'000};

extern "C" int64_t execute(const redrive::gate::Registers* regs, redrive::gate::Phase during,
                           uint64_t asleep = 0);  // gate.cc

// What the compiler and xxhash expect of a C library.
extern "C" void* memcpy(void* to, const void* from, size_t length) {
  void* at = to;
  asm volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(length) : : "memory");
  return to;
}
extern "C" void* memset(void* to, int byte, size_t length) {
  void* at = to;
  asm volatile("rep stosb" : "+D"(at), "+c"(length) : "a"(byte) : "memory");
  return to;
}

namespace redrive::gate {

uint64_t hash_of(const Registers& regs) { return XXH3_64bits(&regs, sizeof regs); }

namespace {

constexpr uint64_t kFutex = 202, kFutexWait = 0, kFutexWake = 1;  // futex(2)
constexpr uint64_t kYield = 24;                                   // sched_yield(2)
constexpr int kSpins = 600, kYields = 8;
constexpr uint32_t kMostInVain = 3;

// The same as preserved_registers_hash (registers.h).
uint32_t registers_hash(const Registers& r) {
  uint64_t fs_base, gs_base;
  asm volatile("rdfsbase %0" : "=r"(fs_base));
  asm volatile("rdgsbase %0" : "=r"(gs_base));
  const uint64_t values[] = {r.rbx, r.rbp, r.rsp, r.r12, r.r13, r.r14, r.r15, fs_base, gs_base};
  return static_cast<uint32_t>(XXH3_64bits(values, sizeof values));
}

// The hash of what the kernel would read (payload.h). A single piece, the usual case, needs no state.
class InputHash {
 public:
  [[gnu::noinline]] void add(uint64_t address, uint64_t length) {
    if (pieces_++ == 0) {
      address_ = address, length_ = length;
      return;
    }
    if (pieces_ == 2) {
      XXH3_64bits_reset(&state_);
      XXH3_64bits_update(&state_, reinterpret_cast<const void*>(address_), length_);
    }
    XXH3_64bits_update(&state_, reinterpret_cast<const void*>(address), length);
  }
  [[gnu::noinline]] uint64_t value() const {
    if (pieces_ == 0) return 0;
    return pieces_ == 1 ? XXH3_64bits(reinterpret_cast<const void*>(address_), length_) : XXH3_64bits_digest(&state_);
  }

 private:
  int pieces_ = 0;
  uint64_t address_ = 0, length_ = 0;
  XXH3_state_t state_;
};

[[gnu::noinline]] uint64_t hash_inputs(const Call& call, const Registers& regs) {
  InputHash hash;
  for_each_input(call, regs, [&](uint64_t address, uint64_t length, bool) { hash.add(address, length); });
  return hash.value();
}

bool same_call(const Expected& expected, const Slot& slot) {
  const Registers& regs = slot.regs;
  if (expected.site != slot.site || static_cast<int64_t>(regs.rax) != expected.number) return false;
  for (uint32_t i = 0; i < expected.arguments; ++i) {
    if (argument(regs, static_cast<int>(i)) != expected.args[i]) return false;
  }
  if ((registers_hash(regs) & expected.regs_mask) != expected.regs_hash) return false;
  const Call* const call = call_of(regs);
  return call && (expected.in_hash == 0 || hash_inputs(*call, regs) == expected.in_hash);
}

MessagesHeader& header_of(const Slot& slot) { return *reinterpret_cast<MessagesHeader*>(slot.messages); }
Message* messages_of(const Slot& slot) { return reinterpret_cast<Message*>(slot.messages + sizeof(MessagesHeader)); }
Message& message_at(const Slot& slot, uint64_t index) { return messages_of(slot)[index]; }
MessageRing& ring_of(const Slot& slot, const Message& message) {
  return reinterpret_cast<MessageRing*>(slot.messages + header_of(slot).rings)[message.ring - 1];
}
uint8_t* bytes_of(const Slot& slot, const Message& message) {
  return reinterpret_cast<uint8_t*>(slot.messages + message.offset);
}

int64_t futex(const void* word, uint64_t operation, uint64_t value, const timespec* timeout) {
  Registers regs{};
  regs.rax = kFutex, regs.rdi = reinterpret_cast<uint64_t>(word), regs.rsi = operation, regs.rdx = value;
  regs.r10 = reinterpret_cast<uint64_t>(timeout);
  return execute(&regs, Phase::kernel);
}

void yield() {
  Registers regs{};
  regs.rax = kYield;
  execute(&regs, Phase::kernel);
}

bool is_sent(const Message& message) { return __atomic_load_n(&message.state, __ATOMIC_ACQUIRE) == MessageState::sent; }

// Waits a while for the sender, which another processor may be about to execute, or this one, if it may. To sleep and
// to be woken takes much longer than most messages do.
bool await(const Slot& slot, Message& message) {
  if (is_sent(message)) return true;
  for (int i = 0; i < kSpins && message.processor != slot.processor; ++i) {
    if (is_sent(message)) return true;
    __builtin_ia32_pause();
  }
  for (int i = 0; i < kYields; ++i) {
    yield();
    if (is_sent(message)) return true;
  }
  MessageState absent = MessageState::absent;
  __atomic_compare_exchange_n(&message.state, &absent, MessageState::awaited, false, __ATOMIC_SEQ_CST,
                              __ATOMIC_SEQ_CST);
  __atomic_fetch_add(&header_of(slot).waiting, 1, __ATOMIC_SEQ_CST);
  if (!is_sent(message)) futex(&message.state, kFutexWait, static_cast<uint64_t>(MessageState::awaited), &patience);
  __atomic_fetch_sub(&header_of(slot).waiting, 1, __ATOMIC_SEQ_CST);
  return is_sent(message);
}

// Whether everything that the call receives is there, and is the same as when recorded.
bool arrived(const Slot& slot, const Expected& expected, const Part* parts) {
  for (uint32_t i = 0; i < expected.parts; ++i) {
    const Part& part = parts[i];
    Message& message = message_at(slot, part.message);
    if (!await(slot, message)) return false;
    const uint64_t there = smaller(message.length, message.capacity);
    if (part.offset > there || part.length > there - part.offset) return false;
    if (XXH3_64bits(bytes_of(slot, message) + part.offset, part.length) != part.hash) return false;
  }
  return true;
}

// The supervisor has populated the pages of what is sent: where one is read first, the kernel maps those around it,
// too.
void map_pages(const uint8_t* bytes, uint64_t length) {
  constexpr uint64_t kPage = 4096;
  for (uint64_t at = 0; at < length; at += kPage) static_cast<void>(*const_cast<const volatile uint8_t*>(bytes + at));
}

// Looks for room in the ring. If the receivers are late, waits a while for half of it to become free. It gives up after
// a few waits in vain, because what the receivers wait for may come after this message.
void find_room(const Slot& slot, uint64_t index) {
  Message& message = message_at(slot, index);
  MessageRing& ring = ring_of(slot, message);
  if (place_in(ring, messages_of(slot), index)) return;
  if (message.capacity > ring.size || ring.in_vain == kMostInVain) return;
  __atomic_store_n(&ring.awaited, ring.oldest + (index - ring.oldest) / 2, __ATOMIC_SEQ_CST);
  __atomic_store_n(&ring.waits, 1, __ATOMIC_SEQ_CST);
  __atomic_fetch_add(&header_of(slot).waiting, 1, __ATOMIC_SEQ_CST);
  const uint64_t oldest = ring.oldest;
  if (!place_in(ring, messages_of(slot), index)) {
    futex(&ring.waits, kFutexWait, 1, &patience);
    if (!place_in(ring, messages_of(slot), index) && ring.oldest == oldest) ++ring.in_vain;
  }
  __atomic_fetch_sub(&header_of(slot).waiting, 1, __ATOMIC_SEQ_CST);
  __atomic_store_n(&ring.waits, 0, __ATOMIC_SEQ_CST);
}

void end_use(const Slot& slot, uint64_t index) {
  Message& message = message_at(slot, index);
  if (!message.ring) return;
  MessageRing& ring = ring_of(slot, message);
  if (end_use(ring, message, index)) futex(&ring.waits, kFutexWake, 1, nullptr);
}

void send(const Slot& slot, const Call& call, uint64_t index) {
  Message& message = message_at(slot, index);
  if (message.ring) find_room(slot, index);
  map_pages(bytes_of(slot, message), message.capacity);
  message.length = 0;
  for_each_input(call, slot.regs, [&](uint64_t address, uint64_t length, bool payload) {
    if (!payload) return;
    const uint64_t room = message.length < message.capacity ? message.capacity - message.length : 0;
    memcpy(bytes_of(slot, message) + message.length, reinterpret_cast<const void*>(address), smaller(length, room));
    message.length += length;
  });
  const MessageState before = __atomic_exchange_n(&message.state, MessageState::sent, __ATOMIC_SEQ_CST);
  if (before == MessageState::awaited) futex(&message.state, kFutexWake, INT32_MAX, nullptr);
}

// Bytes of the received message, one part after the other.
class Received {
 public:
  Received(const Slot& slot, const Part* part) : slot_(slot), part_(part) {}
  void take(uint64_t to, uint64_t length) {
    while (length) {
      const uint64_t now = smaller(length, part_->length - taken_);
      const Message& message = message_at(slot_, part_->message);
      memcpy(reinterpret_cast<void*>(to), bytes_of(slot_, message) + part_->offset + taken_, now);
      to += now, length -= now, taken_ += now;
      if (taken_ == part_->length) ++part_, taken_ = 0;
    }
  }

 private:
  const Slot& slot_;
  const Part* part_;
  uint64_t taken_ = 0;
};

// The call that the ring expects next; null if it is empty.
const Expected* next(const Slot& slot) {
  if (slot.taken == slot.head) return nullptr;
  const auto* const expected = reinterpret_cast<const Expected*>(kRing + slot.taken);
  if (slot.repeated == 0) return expected;
  // The calls of a cycle come in turn; the expected one ends the cycle.
  uint32_t turn = (slot.repeated - 1) % expected->cycle;
  if (turn == expected->cycle - 1u) return expected;
  uint64_t at = kRing + slot.taken + expected->own_size;
  for (; turn > 0; --turn) at += reinterpret_cast<const Expected*>(at)->size;
  return reinterpret_cast<const Expected*>(at);
}

// The call that the ring expects next was made.
void take(Slot& slot) {
  const auto& expected = *reinterpret_cast<const Expected*>(kRing + slot.taken);
  if (++slot.repeated != expected.repeat) return;
  slot.repeated = 0;
  slot.taken += expected.size;
}

const Expected* next_trap(const Slot& slot) {
  const Expected* const expected = next(slot);
  return expected && expected->number == kTrapNumber && expected->site == slot.site ? expected : nullptr;
}

// Makes the calls that change memory as the expected call did. False if one fails.
bool make(const InjectedCall* calls, uint32_t count) {
  constexpr int64_t kLeastError = -4095;
  for (uint32_t i = 0; i < count; ++i) {
    const auto& [number, args] = calls[i];
    Registers regs{};
    regs.rax = number, regs.rdi = args[0], regs.rsi = args[1], regs.rdx = args[2];
    regs.r10 = args[3], regs.r8 = args[4], regs.r9 = args[5];
    const int64_t result = execute(&regs, Phase::kernel);
    if (result < 0 && result >= kLeastError) return false;
  }
  return true;
}

// Whether what was written is there already. What a call leaves of a timeout mostly is, and may lie in memory that the
// program cannot write to.
bool is_there(const Output& output) {
  constexpr uint64_t kTimeout = 16;
  if (output.length > kTimeout) return false;
  const auto* const written = reinterpret_cast<const uint8_t*>(&output + 1);
  const auto* const there = reinterpret_cast<const uint8_t*>(output.address);
  for (uint64_t i = 0; i < output.length; ++i) {
    if (there[i] != written[i]) return false;
  }
  return true;
}

}  // namespace

const uint64_t* counter_answer(Slot& slot) {
  const Expected* const expected = next_trap(slot);
  if (!expected) return nullptr;
  take(slot);
  return expected->args;
}

const uint64_t* cpuid_answer(Slot& slot, uint64_t leaf, uint64_t subleaf) {
  const Expected* const expected = next_trap(slot);
  if (!expected || expected->args[4] != leaf || expected->args[5] != subleaf) return nullptr;
  take(slot);
  return expected->args;
}

bool answer(Slot& slot) {
  const Expected* const found = next(slot);
  if (!found || !same_call(*found, slot)) return false;
  const Expected& expected = *found;
  const auto* parts = reinterpret_cast<const Part*>(&expected + 1);
  if (!arrived(slot, expected, parts)) return false;
  const auto* calls = reinterpret_cast<const InjectedCall*>(parts + expected.parts);
  if (!make(calls, expected.calls)) return false;
  if (expected.sends) send(slot, *call_of(slot.regs), expected.sends - 1);
  Received received(slot, parts);
  const auto* output = reinterpret_cast<const Output*>(calls + expected.calls);
  for (uint32_t i = 0; i < expected.outputs; ++i) {
    uint64_t next = reinterpret_cast<uint64_t>(output + 1);
    if (output->from_message) {
      received.take(output->address, output->length);
    } else {
      if (!is_there(*output)) memcpy(reinterpret_cast<void*>(output->address), output + 1, output->length);
      next += padded(output->length);
    }
    output = reinterpret_cast<const Output*>(next);
  }
  for (uint32_t i = 0; i < expected.parts; ++i) end_use(slot, parts[i].message);
  slot.regs.rax = static_cast<uint64_t>(expected.result);
  take(slot);
  return true;
}

}  // namespace redrive::gate
