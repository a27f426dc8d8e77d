#include "logstore/event.h"

#include "base/assert.h"
#include "logstore/rows.h"

namespace redrive {
namespace {

// An event begins with one integer: its kind, and which fields follow. A field with its default value takes no space.
constexpr uint64_t kKindMask = 7;
constexpr uint64_t kHasThread = 1 << 3;
constexpr uint64_t kHasResult = 1 << 4;
constexpr uint64_t kHasArgs = 1 << 5;
constexpr uint64_t kHasWrites = 1 << 6;
constexpr uint64_t kHasRegsHash = 1 << 7;
constexpr uint64_t kHasInHash = 1 << 8;
constexpr uint64_t kHasIp = 1 << 9;
constexpr uint64_t kHasRepeat = 1 << 10;
constexpr uint64_t kHasReceive = 1 << 11;
constexpr uint64_t kHasSend = 1 << 12;
constexpr uint64_t kHasMap = 1 << 13;
constexpr uint64_t kHasRegisters = 1 << 14;
constexpr uint64_t kHasChildUnit = 1 << 15;
constexpr uint64_t kHasChildThread = 1 << 16;
constexpr uint64_t kFatal = 1 << 17;
constexpr uint64_t kHasChanges = 1 << 18;
constexpr uint64_t kHasChildWrites = 1 << 19;
constexpr uint64_t kHasCycle = 1 << 20;
constexpr uint64_t kHasShortHash = 1 << 21;
constexpr uint64_t kAllFlags = (1 << 22) - 1;

uint64_t flags_of(const Event& event) {
  uint64_t flags = static_cast<uint64_t>(event.kind);
  if (event.thread) flags |= kHasThread;
  if (event.result) flags |= kHasResult;
  for (const uint64_t arg : event.args) {
    if (arg) flags |= kHasArgs;
  }
  if (!event.writes.empty()) flags |= kHasWrites;
  if (event.regs_hash.mask == RegistersHash::kShort) {
    flags |= kHasShortHash;
  } else if (event.regs_hash.value) {
    flags |= kHasRegsHash;
  }
  if (event.in_hash) flags |= kHasInHash;
  if (event.ip) flags |= kHasIp;
  if (event.repeat != 1) flags |= kHasRepeat;
  if (event.receive) flags |= kHasReceive;
  if (event.send) flags |= kHasSend;
  if (event.map) flags |= kHasMap;
  if (event.registers) flags |= kHasRegisters;
  if (event.child_unit) flags |= kHasChildUnit;
  if (event.child_thread) flags |= kHasChildThread;
  if (event.fatal) flags |= kFatal;
  if (!event.changes.empty()) flags |= kHasChanges;
  if (!event.child_writes.empty()) flags |= kHasChildWrites;
  if (event.cycle != 1) flags |= kHasCycle;
  return flags;
}

// ---- The two encodings: events by themselves, up to format 8, and events as rows.

void read_args(Decoder& in, std::array<uint64_t, 6>& args) {
  const uint64_t mask = in.u();
  if (mask >> args.size()) in.fail();
  for (size_t i = 0; i < args.size(); i++) {
    if (mask & (uint64_t{1} << i)) args[i] = in.u();
  }
}
void read_args(RowReader& in, std::array<uint64_t, 6>& args) {
  for (uint64_t& arg : args) arg = in.u();
}

uint64_t read_near(Decoder& in, uint64_t) { return in.u(); }
uint64_t read_near(RowReader& in, uint64_t base) { return in.near(base); }

uint64_t read_since(Decoder& in, size_t) { return in.u(); }
uint64_t read_since(RowReader& in, size_t series) { return in.since(series); }

// The series of numbers that grow through a unit's events.
constexpr size_t kArrivals = 0, kTimes = 1;
constexpr size_t kSenders = 2;  // events of the senders, by channel
size_t senders(uint64_t channel) { return kSenders + channel % (rows::kSeries - kSenders); }

// ---- Parts of events

// The length and the kind of a write share one integer; the address follows, and then the bytes, if they are here.
constexpr uint64_t kChangesPages = uint64_t{1} << 63;

// What the first write of a call probably depends on: how much the call says that it read, and whereto it should.
struct Call {
  uint64_t result = 0;
  uint64_t buffer = 0;
};
Call call_of(const Event& event, bool first_write) {
  return first_write ? Call{static_cast<uint64_t>(event.result), event.args[1]} : Call{};
}

void encode_write(const MemoryWrite& write, const Call& call, RowWriter& out) {
  using Kind = MemoryWrite::Kind;
  ASSERT(write.length >> 62 == 0);
  ASSERT(write.data.size() == (write.kind == Kind::data ? write.length : 0));
  const bool second = write.kind == Kind::message || write.kind == Kind::beyond_end;
  out.near((write.changes_pages() ? kChangesPages : 0) | write.length << 1 | (second ? 1 : 0), call.result << 1);
  out.near(write.address, call.buffer);
  out.raw(write.data.data(), write.data.size());
}

template <typename In>
void decode_write(In& in, const Call& call, MemoryWrite& write) {
  const uint64_t head = read_near(in, call.result << 1);
  using Kind = MemoryWrite::Kind;
  write.length = (head & ~kChangesPages) >> 1;
  const Kind kinds[] = {Kind::data, Kind::message, Kind::zeros, Kind::beyond_end};
  write.kind = kinds[(head & kChangesPages ? 2 : 0) + (head & 1)];
  write.address = read_near(in, call.buffer);
  if (write.length >> 62) in.fail();
  const auto data = in.take(write.kind == Kind::data ? write.length : 0);
  write.data.assign(data.begin(), data.end());
}

void encode_writes(const std::vector<MemoryWrite>& writes, const Event& event, RowWriter& out) {
  out.u(writes.size());
  for (const auto& write : writes) encode_write(write, call_of(event, &write == &writes.front()), out);
}

template <typename In>
void decode_writes(In& in, const Event& event, std::vector<MemoryWrite>& writes) {
  constexpr size_t kNumbers = 2;
  const size_t count = in.count(kNumbers);
  size_t decoded = 0;
  for (; decoded < count && in.ok(); ++decoded) {
    MemoryWrite& write = decoded < writes.size() ? writes[decoded] : writes.emplace_back();
    decode_write(in, call_of(event, decoded == 0), write);
  }
  writes.resize(decoded);
}

void encode_receive(const Receive& receive, uint64_t result, RowWriter& out) {
  out.u(receive.channel);
  out.since(kArrivals, receive.arrival);
  out.since(kTimes, receive.at_ns);
  out.u(receive.logged);
  out.u(receive.parts.size());
  for (const auto& part : receive.parts) {
    out.u(part.sender.unit);
    out.since(senders(receive.channel), part.sender.event);
    out.u(part.offset);
    out.near(part.length, receive.parts.size() == 1 ? result : 0);
    out.fixed64(part.hash);
  }
}

template <typename In>
uint32_t decode_u32(In& in) {
  const uint64_t value = in.u();
  if (value > UINT32_MAX) in.fail();
  return static_cast<uint32_t>(value);
}

template <typename In>
bool decode_bool(In& in) {
  const uint64_t value = in.u();
  if (value > 1) in.fail();
  return value == 1;
}

template <typename In>
Receive decode_receive(In& in, uint64_t result) {
  Receive receive;
  receive.channel = in.u();
  receive.arrival = read_since(in, kArrivals);
  receive.at_ns = read_since(in, kTimes);
  receive.logged = decode_bool(in);
  constexpr size_t kNumbers = 3;
  const size_t count = in.count(kNumbers);
  for (size_t i = 0; i < count && in.ok(); i++) {
    MessagePart part;
    part.sender.unit = decode_u32(in);
    part.sender.event = read_since(in, senders(receive.channel));
    part.offset = in.u();
    part.length = read_near(in, count == 1 ? result : 0);
    part.hash = in.fixed64();
    receive.parts.push_back(part);
  }
  return receive;
}

template <typename In>
Bytes decode_bytes(In& in) {
  const auto data = in.bytes();
  return Bytes(data.begin(), data.end());
}

constexpr uint64_t kMostOffset = uint64_t{1} << 62;  // off_t, and sums of two of them

void encode_change(const ObjectChange& change, RowWriter& out) {
  using Kind = ObjectChange::Kind;
  ASSERT(change.data.size() == (change.kind == Kind::data ? change.length : 0));
  ASSERT(change.offset < kMostOffset && change.length < kMostOffset);
  out.u(static_cast<uint64_t>(change.kind));
  out.u(change.object);
  out.u(change.offset);
  if (change.kind != Kind::size) out.u(change.length);
  if (change.kind == Kind::file) out.u(change.file);
  out.raw(change.data.data(), change.data.size());
}

template <typename In>
ObjectChange decode_change(In& in) {
  using Kind = ObjectChange::Kind;
  ObjectChange change;
  const uint64_t kind = in.u();
  if (kind > static_cast<uint64_t>(Kind::file)) in.fail();
  change.kind = static_cast<Kind>(kind);
  change.object = in.u();
  change.offset = in.u();
  if (change.kind != Kind::size) change.length = in.u();
  if (change.kind == Kind::file) change.file = in.u();
  if (change.offset >= kMostOffset || change.length >= kMostOffset) in.fail();
  if (change.kind == Kind::data) {
    const auto data = in.take(change.length);
    change.data.assign(data.begin(), data.end());
  }
  return change;
}

void encode_rare(const Event& event, RowWriter& out) {
  const auto result = static_cast<uint64_t>(event.result);
  if (event.repeat != 1) out.u(event.repeat);
  if (event.receive) encode_receive(*event.receive, result, out);
  if (event.send) {
    out.u(event.send->channel);
    out.near(event.send->length, result);
    out.since(kTimes, event.send->at_ns);
  }
  if (event.map) {
    out.u(event.map->file);
    out.u(event.map->offset);
    out.u(event.map->shared_object);
    out.u(event.map->length);
  }
  if (event.registers) {
    out.bytes(event.registers->general);
    out.bytes(event.registers->xstate);
  }
  if (event.child_unit) out.u(event.child_unit);
  if (event.child_thread) out.u(event.child_thread);
  if (!event.changes.empty()) {
    out.u(event.changes.size());
    for (const auto& change : event.changes) encode_change(change, out);
  }
  if (!event.child_writes.empty()) encode_writes(event.child_writes, Event(), out);
  ASSERT(event.cycle >= 1 && event.cycle <= kLongestCycle);
  if (event.cycle != 1) out.u(event.cycle);
}

template <typename In>
void decode_rare(In& in, uint64_t flags, Event& event) {
  const auto result = static_cast<uint64_t>(event.result);
  if (flags & kHasRepeat) event.repeat = in.u();
  if (flags & kHasReceive) event.receive = decode_receive(in, result);
  if (flags & kHasSend) {
    event.send.emplace();
    event.send->channel = in.u();
    event.send->length = read_near(in, result);
    event.send->at_ns = read_since(in, kTimes);
  }
  if (flags & kHasMap) {
    event.map.emplace();
    event.map->file = in.u();
    event.map->offset = in.u();
    event.map->shared_object = in.u();
    event.map->length = in.u();
  }
  if (flags & kHasRegisters) {
    event.registers.emplace();
    event.registers->general = decode_bytes(in);
    event.registers->xstate = decode_bytes(in);
  }
  if (flags & kHasChildUnit) event.child_unit = decode_u32(in);
  if (flags & kHasChildThread) event.child_thread = decode_u32(in);
  if (flags & kHasChanges) {
    constexpr size_t kNumbers = 3;
    for (size_t count = in.count(kNumbers); count > 0 && in.ok(); --count) {
      event.changes.push_back(decode_change(in));
    }
  }
  if (flags & kHasChildWrites) decode_writes(in, Event(), event.child_writes);
  if (flags & kHasCycle) {
    event.cycle = decode_u32(in);
    if (event.cycle < 2 || event.cycle > kLongestCycle) in.fail();
  }
}

RegistersHash decode_short_hash(Decoder& in) {
  in.fail();  // formats before 10 have none
  return {};
}
RegistersHash decode_short_hash(RowReader& in) {
  const uint8_t value = in.fixed8();
  if (value > RegistersHash::kShort) in.fail();
  return RegistersHash::of_call(value);
}

template <typename In>
bool decode_event(In& in, Event& event) {
  std::vector<MemoryWrite> writes = std::move(event.writes);  // so that its memory is reused
  event.clear();
  event.writes = std::move(writes);
  const uint64_t flags = in.u();
  if (flags & ~kAllFlags || (flags & kKindMask) > static_cast<uint64_t>(EventKind::preemption)) in.fail();
  event.kind = static_cast<EventKind>(flags & kKindMask);
  const int64_t number = in.s();
  if (number < INT32_MIN || number > INT32_MAX) in.fail();
  event.number = static_cast<int32_t>(number);
  if (flags & kHasThread) event.thread = decode_u32(in);
  if (flags & kHasResult) event.result = in.s();
  if (flags & kHasArgs) read_args(in, event.args);
  if (flags & kHasIp) event.ip = in.u();
  if (flags & kHasRegsHash) event.regs_hash = RegistersHash::whole(in.fixed32());
  if (flags & kHasShortHash) {
    event.regs_hash = decode_short_hash(in);
    if (flags & kHasRegsHash) in.fail();
  }
  if (flags & kHasInHash) event.in_hash = in.fixed64();
  if (flags & kHasWrites) {
    decode_writes(in, event, event.writes);
  } else {
    event.writes.clear();
  }
  if (in.ok()) decode_rare(in, flags, event);
  event.fatal = flags & kFatal;
  return in.ok();
}

// Events are alike if they come from the same instruction. The place of a call is its first argument as well, which is
// often a descriptor.
uint64_t likeness_of(const Event& event, uint64_t flags) {
  constexpr uint64_t kOdd =
      0x9e37'79b9'7f4a'7c15;  // 2^64 divided by the golden ratio: spreads what lies close together
  uint64_t key = (flags * kOdd + static_cast<uint32_t>(event.number)) * kOdd;
  key = (key + event.ip) * kOdd;
  key = (key + event.thread) * kOdd;
  return key ^ key >> 32;
}
uint64_t place_of(const Event& event, uint64_t likeness) {
  constexpr uint64_t kOdd = 0xd6e8'feb8'6659'fd93;
  const bool call = event.kind == EventKind::syscall || event.kind == EventKind::entry;
  const uint64_t key = (likeness + (call ? event.args[0] : 0)) * kOdd;
  return key ^ key >> 32;
}

}  // namespace

void Event::clear() {
  kind = EventKind::syscall;
  thread = 0;
  repeat = 1;
  cycle = 1;
  number = 0;
  args = {};
  ip = 0;
  regs_hash = {};
  in_hash = 0;
  result = 0;
  writes.clear();
  changes.clear();
  child_writes.clear();
  receive.reset();
  send.reset();
  map.reset();
  registers.reset();
  child_unit = 0;
  child_thread = 0;
  fatal = false;
  time = {};
}

void encode(const Event& event, RowWriter& out) {
  const uint64_t flags = flags_of(event);
  const uint64_t likeness = likeness_of(event, flags);
  out.begin(place_of(event, likeness), likeness);
  out.u(flags);
  out.s(event.number);
  if (flags & kHasThread) out.u(event.thread);
  if (flags & kHasResult) out.s(event.result);
  if (flags & kHasArgs) {
    for (const uint64_t arg : event.args) out.u(arg);
  }
  if (flags & kHasIp) out.u(event.ip);
  if (flags & kHasRegsHash) out.fixed32(event.regs_hash.value);
  if (flags & kHasShortHash) out.fixed8(static_cast<uint8_t>(event.regs_hash.value));
  if (flags & kHasInHash) out.fixed64(event.in_hash);
  if (flags & kHasWrites) encode_writes(event.writes, event, out);
  if (flags & (kAllFlags & ~(kHasRepeat - 1))) encode_rare(event, out);
  out.end();
}

bool decode(RowReader& in, Event& event) {
  in.begin();
  return decode_event(in, event);
}

bool decode(Decoder& in, Event& event) { return decode_event(in, event); }

}  // namespace redrive
