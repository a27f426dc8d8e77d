#include "logstore/event.h"

#include "base/check.h"

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
constexpr uint64_t kAllFlags = (1 << 21) - 1;

uint64_t flags_of(const Event& event) {
  uint64_t flags = static_cast<uint64_t>(event.kind);
  if (event.thread) flags |= kHasThread;
  if (event.result) flags |= kHasResult;
  for (const uint64_t arg : event.args) {
    if (arg) flags |= kHasArgs;
  }
  if (!event.writes.empty()) flags |= kHasWrites;
  if (event.regs_hash) flags |= kHasRegsHash;
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

void encode_args(const std::array<uint64_t, 6>& args, Encoder& out) {
  uint64_t mask = 0;
  for (size_t i = 0; i < args.size(); i++) {
    if (args[i]) mask |= uint64_t{1} << i;
  }
  out.u(mask);
  for (const uint64_t arg : args) {
    if (arg) out.u(arg);
  }
}

void decode_args(Decoder& in, std::array<uint64_t, 6>& args) {
  const uint64_t mask = in.u();
  if (mask >> args.size()) in.fail();
  for (size_t i = 0; i < args.size(); i++) {
    if (mask & (uint64_t{1} << i)) args[i] = in.u();
  }
}

// The length and the kind of a write share one integer; the address follows, and then the bytes, if they are here.
constexpr uint64_t kChangesPages = uint64_t{1} << 63;

void encode_write(const MemoryWrite& write, Encoder& out) {
  using Kind = MemoryWrite::Kind;
  CHECK(write.length >> 62 == 0);
  CHECK(write.data.size() == (write.kind == Kind::data ? write.length : 0));
  const bool second = write.kind == Kind::message || write.kind == Kind::beyond_end;
  out.u((write.changes_pages() ? kChangesPages : 0) | write.length << 1 | (second ? 1 : 0));
  out.u(write.address);
  out.raw(write.data.data(), write.data.size());
}

void decode_write(Decoder& in, MemoryWrite& write) {
  const uint64_t head = in.u();
  using Kind = MemoryWrite::Kind;
  write.length = (head & ~kChangesPages) >> 1;
  const Kind kinds[] = {Kind::data, Kind::message, Kind::zeros, Kind::beyond_end};
  write.kind = kinds[(head & kChangesPages ? 2 : 0) + (head & 1)];
  write.address = in.u();
  if (write.length >> 62) in.fail();
  const auto data = in.take(write.kind == Kind::data ? write.length : 0);
  write.data.assign(data.begin(), data.end());
}

void encode_receive(const Receive& receive, Encoder& out) {
  out.u(receive.channel);
  out.u(receive.arrival);
  out.u(receive.at_ns);
  out.u(receive.logged);
  out.u(receive.parts.size());
  for (const auto& part : receive.parts) {
    out.u(part.sender.unit);
    out.u(part.sender.event);
    out.u(part.offset);
    out.u(part.length);
    out.fixed64(part.hash);
  }
}

uint32_t decode_u32(Decoder& in) {
  const uint64_t value = in.u();
  if (value > UINT32_MAX) in.fail();
  return static_cast<uint32_t>(value);
}

bool decode_bool(Decoder& in) {
  const uint64_t value = in.u();
  if (value > 1) in.fail();
  return value == 1;
}

Receive decode_receive(Decoder& in) {
  Receive receive;
  receive.channel = in.u();
  receive.arrival = in.u();
  receive.at_ns = in.u();
  receive.logged = decode_bool(in);
  constexpr size_t kMinPartSize = 4 + sizeof(uint64_t);
  const size_t count = in.count(kMinPartSize);
  receive.parts.reserve(count);
  for (size_t i = 0; i < count && in.ok(); i++) {
    MessagePart part;
    part.sender.unit = decode_u32(in);
    part.sender.event = in.u();
    part.offset = in.u();
    part.length = in.u();
    part.hash = in.fixed64();
    receive.parts.push_back(part);
  }
  return receive;
}

void decode_writes(Decoder& in, std::vector<MemoryWrite>& writes) {
  const size_t count = in.count(2);
  size_t decoded = 0;
  for (; decoded < count && in.ok(); ++decoded) {
    decode_write(in, decoded < writes.size() ? writes[decoded] : writes.emplace_back());
  }
  writes.resize(decoded);
}

Bytes decode_bytes(Decoder& in) {
  const auto data = in.bytes();
  return Bytes(data.begin(), data.end());
}

void encode_change(const ObjectChange& change, Encoder& out) {
  using Kind = ObjectChange::Kind;
  CHECK(change.data.size() == (change.kind == Kind::data ? change.length : 0));
  out.u(static_cast<uint64_t>(change.kind));
  out.u(change.object);
  out.u(change.offset);
  if (change.kind != Kind::size) out.u(change.length);
  if (change.kind == Kind::file) out.u(change.file);
  out.raw(change.data.data(), change.data.size());
}

ObjectChange decode_change(Decoder& in) {
  using Kind = ObjectChange::Kind;
  constexpr uint64_t kMostOffset = uint64_t{1} << 62;  // off_t, and sums of two of them
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

void encode_rare(const Event& event, Encoder& out) {
  if (event.repeat != 1) out.u(event.repeat);
  if (event.receive) encode_receive(*event.receive, out);
  if (event.send) {
    out.u(event.send->channel);
    out.u(event.send->length);
    out.u(event.send->at_ns);
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
  if (!event.child_writes.empty()) {
    out.u(event.child_writes.size());
    for (const auto& write : event.child_writes) encode_write(write, out);
  }
  if (event.cycle != 1) out.u(event.cycle);
}

void decode_rare(Decoder& in, uint64_t flags, Event& event) {
  if (flags & kHasRepeat) event.repeat = in.u();
  if (flags & kHasReceive) event.receive = decode_receive(in);
  if (flags & kHasSend) {
    event.send.emplace();
    event.send->channel = in.u();
    event.send->length = in.u();
    event.send->at_ns = in.u();
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
    constexpr size_t kMinChangeSize = 3;
    for (size_t count = in.count(kMinChangeSize); count > 0 && in.ok(); --count) {
      event.changes.push_back(decode_change(in));
    }
  }
  if (flags & kHasChildWrites) decode_writes(in, event.child_writes);
  if (flags & kHasCycle) {
    event.cycle = decode_u32(in);
    if (event.cycle < 2 || event.cycle > kLongestCycle) in.fail();
  }
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
  regs_hash = 0;
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
}

void encode(const Event& event, Encoder& out) {
  const uint64_t flags = flags_of(event);
  out.u(flags);
  out.s(event.number);
  if (flags & kHasThread) out.u(event.thread);
  if (flags & kHasResult) out.s(event.result);
  if (flags & kHasArgs) encode_args(event.args, out);
  if (flags & kHasIp) out.u(event.ip);
  if (flags & kHasRegsHash) out.fixed32(event.regs_hash);
  if (flags & kHasInHash) out.fixed64(event.in_hash);
  if (flags & kHasWrites) {
    out.u(event.writes.size());
    for (const auto& write : event.writes) encode_write(write, out);
  }
  if (flags & (kAllFlags & ~(kHasRepeat - 1))) encode_rare(event, out);
}

bool decode(Decoder& in, Event& event) {
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
  if (flags & kHasArgs) decode_args(in, event.args);
  if (flags & kHasIp) event.ip = in.u();
  if (flags & kHasRegsHash) event.regs_hash = in.fixed32();
  if (flags & kHasInHash) event.in_hash = in.fixed64();
  if (flags & kHasWrites) {
    decode_writes(in, event.writes);
  } else {
    event.writes.clear();
  }
  if (in.ok()) decode_rare(in, flags, event);
  event.fatal = flags & kFatal;
  return in.ok();
}

}  // namespace redrive
