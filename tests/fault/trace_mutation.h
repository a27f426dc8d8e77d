// Changes what a trace says, as a forger might: fields of its records get other values, above all extreme values and
// those of other records; records are left out, repeated, swapped and moved. The result is nearly always well formed,
// so that it gets past the decoders. The same seed makes the same changes.
#pragma once

#include <cmath>
#include <limits>
#include <random>

#include "checkpoint/stub.h"
#include "interceptors/inprocess/layout.h"
#include "supervisor/tier/end_state.h"
#include "tests/fault/trace_parts.h"

namespace redrive {

class Mutation {
 public:
  explicit Mutation(uint64_t seed) : random_(seed) {}

  // Changes one thing or a few, but not in the journal.
  void change(TraceParts& parts) {
    for (uint64_t left = changes(); left > 0; --left) {
      const uint64_t what = below(100);
      if (what < 45) {
        change_events(parts);
      } else if (what < 65) {
        change_image(parts);
      } else if (what < 70) {
        change_pages(parts);
      } else if (what < 75) {
        change_payloads(parts);
      } else {
        change_list(parts.journal, 1);  // the first are the settings
      }
    }
  }

  // Changes records of the journal, which may then contradict the other files.
  void change(std::vector<JournalRecord>& journal) {
    if (!once_in(2)) return;
    for (uint64_t left = changes(); left > 0 && !journal.empty(); --left) {
      std::visit([&](auto& record) { change_field(record); }, any_of(journal));
    }
  }

 private:
  using Field = std::variant<bool*, uint8_t*, uint32_t*, int32_t*, uint64_t*, int64_t*, double*, std::string*, Bytes*>;
  using Fields = std::vector<Field>;

  uint64_t below(uint64_t limit) { return random_() % limit; }
  bool once_in(uint64_t n) { return below(n) == 0; }
  uint64_t changes() {
    uint64_t n = 1;
    while (n < 8 && once_in(2)) ++n;
    return n;
  }
  template <typename List>
  auto any_of(List& list) -> decltype(*list.begin()) {
    return *std::next(list.begin(), static_cast<ptrdiff_t>(below(list.size())));
  }

  // A number near a limit, or one that was seen elsewhere.
  uint64_t number(uint64_t old) {
    constexpr uint64_t kExtreme[] = {0,
                                     1,
                                     2,
                                     7,
                                     8,
                                     9,
                                     0xfff,
                                     0x1000,
                                     0x7fff'ffff,
                                     0x8000'0000,
                                     0xffff'ffff,
                                     0x1'0000'0000,
                                     uint64_t{1} << 47,
                                     (uint64_t{1} << 47) - 4096,
                                     uint64_t{1} << 61,
                                     (uint64_t{1} << 62) - 1,
                                     uint64_t{1} << 62,
                                     INT64_MAX,
                                     uint64_t{1} << 63,
                                     UINT64_MAX - 4095,
                                     UINT64_MAX - 1,
                                     UINT64_MAX,
                                     kGateStart,
                                     kGateEnd,
                                     gate::kCode,
                                     gate::kSlot,
                                     gate::kRing,
                                     gate::kEnd};
    switch (below(8)) {
      case 0:
        return old + 1;
      case 1:
        return old - 1;
      case 2:
        return old ^ (uint64_t{1} << below(64));
      case 3:
        return old + (once_in(2) ? 4096 : -4096);
      case 4:
        return seen_.empty() ? old * 2 : any_of(seen_);
      case 5:
        return below(16);
      default:
        return kExtreme[below(std::size(kExtreme))];
    }
  }

  void change_bytes(auto& bytes) {
    switch (below(bytes.empty() ? 2 : 5)) {
      case 0:
        bytes.insert(bytes.end(), below(9), static_cast<typename std::decay_t<decltype(bytes)>::value_type>(random_()));
        break;
      case 1:
        bytes.assign(once_in(4) ? below(100'000) : below(300), '/');
        break;
      case 2:
        bytes.resize(below(bytes.size()));
        break;
      default:
        for (uint64_t left = 1 + below(4); left > 0; --left) {
          any_of(bytes) = static_cast<typename std::decay_t<decltype(bytes)>::value_type>(number(any_of(bytes)));
        }
    }
  }

  void change_value(bool& value) { value = !value; }
  void change_value(double& value) {
    const double others[] = {0, -1, 1e-300, 1e300, std::numeric_limits<double>::infinity(), std::nan(""), value * 2};
    value = others[below(std::size(others))];
  }
  void change_value(std::string& value) {
    const char* const others[] = {"",        ".",          "..",    "/",   "../../../etc/passwd",
                                  "%s%n",    "\x1b[31m\n", "none",  "all", "critical-path",
                                  "[stack]", "[heap]",     "[vdso]"};
    if (once_in(2)) {
      value = others[below(std::size(others))];
    } else {
      change_bytes(value);
    }
  }
  void change_value(Bytes& value) { change_bytes(value); }
  template <typename Number>
  void change_value(Number& value) {
    value = static_cast<Number>(number(static_cast<uint64_t>(value)));
  }

  void note(const Fields& fields) {
    for (const Field& field : fields) {
      if (auto* const* value = std::get_if<uint64_t*>(&field); value && **value) remember(**value);
      if (auto* const* value = std::get_if<uint32_t*>(&field); value && **value) remember(**value);
    }
  }
  void remember(uint64_t value) {
    constexpr size_t kMost = 64;
    if (seen_.size() < kMost) {
      seen_.push_back(value);
    } else {
      any_of(seen_) = value;
    }
  }

  template <typename Record>
  void change_field(Record& record) {
    Fields fields;
    list(record, fields);
    if (fields.empty()) return;
    note(fields);
    std::visit([&](auto* value) { change_value(*value); }, any_of(fields));
    mend(record);
  }

  template <typename... T>
  static void add(Fields& fields, T&... values) {
    (fields.push_back(&values), ...);
  }
  static void add_all(Fields& fields, auto& values) {
    for (auto& value : values) fields.push_back(&value);
  }
  template <typename Enum>
  static void add_enum(Fields& fields, Enum& value) {
    static_assert(sizeof value == 1);
    fields.push_back(reinterpret_cast<uint8_t*>(&value));
  }

  static void list(EventRef& r, Fields& f) { add(f, r.unit, r.event); }
  static void list(Settings& r, Fields& f) {
    add(f, r.policy, r.critical_path_s, r.checkpoint_period_s, r.bound_s, r.restore_cost_s, r.working_directory, r.host,
        r.started_unix_ns);
    add_all(f, r.command);
  }
  static void list(UnitRecord& r, Fields& f) {
    add(f, r.unit, r.pid);
    list(r.parent, f);
    add_all(f, r.joined);
  }
  static void list(IntervalRecord& r, Fields& f) {
    add(f, r.unit, r.interval, r.first_event, r.has_image, r.pid, r.command, r.pause_ns, r.began_ns, r.threads);
    add_enum(f, r.kind);
  }
  static void list(IntervalEnd& r, Fields& f) {
    add(f, r.unit, r.interval, r.cpu_ns, r.end_event, r.state, r.clock_error_ns, r.ended_ns);
  }
  static void list(ChannelRecord& r, Fields& f) { add(f, r.channel, r.kind, r.name); }
  static void list(Refusal& r, Fields& f) { add(f, r.unit, r.what, r.answer, r.count); }
  static void list(Unsure& r, Fields& f) { add(f, r.unit, r.event, r.reason); }
  static void list(FileRecord& r, Fields& f) { add(f, r.file, r.path, r.copy, r.size); }
  static void list(ImagePublished& r, Fields& f) {
    add(f, r.unit, r.interval, r.pages, r.file_size, r.store_size, r.store_pages, r.first_item, r.own_file);
  }
  static void list(JournalEnd& r, Fields& f) {
    add(f, r.end.exit_status, r.end.reason, r.end.wall_s, r.end.skipped_checkpoints, r.end.criu_images.made,
        r.end.criu_images.failed, r.end.criu_images.first_error);
    for (FileEnd& file : r.files) add(f, file.name, file.size, file.items);
  }
  static void list(Interception& r, Fields& f) { add(f, r.unit, r.served, r.stopped); }
  static void list(StoppingSite& r, Fields& f) { add(f, r.file, r.offset, r.instruction, r.stops, r.patchable); }
  static void list(PayloadsPublished& r, Fields& f) { add(f, r.unit, r.size, r.items); }
  static void list(ShortUnit& r, Fields& f) { add(f, r.unit, r.first_item, r.events); }
  static void list(Join& r, Fields& f) { add(f, r.unit, r.joined, r.event, r.pid, r.object); }
  static void list(WallClockRecord& r, Fields& f) { add(f, r.unchanged_ns, r.since_ns, r.offset_ns, r.error_ns); }

  static void list(std::vector<MemoryWrite>& writes, Fields& f) {
    for (MemoryWrite& write : writes) {
      add(f, write.address, write.length, write.data);
      add_enum(f, write.kind);
    }
  }
  static void list(Event& e, Fields& f) {
    add_enum(f, e.kind);
    add(f, e.thread, e.repeat, e.cycle, e.number, e.ip, e.regs_hash.value, e.in_hash, e.result, e.child_unit,
        e.child_thread, e.fatal, e.time.from_ns, e.time.to_ns);
    add_all(f, e.args);
    list(e.writes, f);
    list(e.child_writes, f);
    for (ObjectChange& change : e.changes) {
      add_enum(f, change.kind);
      add(f, change.object, change.offset, change.length, change.file, change.data);
    }
    if (e.receive) {
      add(f, e.receive->channel, e.receive->arrival, e.receive->at_ns, e.receive->logged);
      for (MessagePart& part : e.receive->parts) {
        list(part.sender, f);
        add(f, part.offset, part.length, part.hash);
      }
    }
    if (e.send) add(f, e.send->channel, e.send->length, e.send->at_ns);
    if (e.map) add(f, e.map->file, e.map->offset, e.map->shared_object, e.map->length);
    if (e.registers) add(f, e.registers->general, e.registers->xstate);
  }

  static void list(ProcessState& p, Fields& f) {
    add(f, p.process, p.pid, p.brk, p.stack_limit);
    for (auto& [entry, descriptor] : p.descriptors) {
      add(f, descriptor.entry, descriptor.base, descriptor.limit, descriptor.flags);
    }
    if (p.memory_of) add(f, *p.memory_of);
  }
  static void list(Mapping& m, Fields& f) {
    add(f, m.start, m.end, m.protection, m.shared, m.offset, m.file, m.shared_object, m.name);
    if (m.object_size) add(f, *m.object_size);
  }
  static void list(ThreadState& t, Fields& f) {
    add(f, t.thread, t.process, t.in_syscall, t.read_implies_exec, t.xstate);
    for (auto* value = reinterpret_cast<unsigned long long*>(&t.regs);
         value < reinterpret_cast<unsigned long long*>(&t.regs + 1); ++value) {
      f.push_back(reinterpret_cast<uint64_t*>(value));
    }
  }
  static void list(UnitState::ZeroPage& page, Fields& f) { add(f, page.process, page.address); }
  static void list(Image::Page& page, Fields& f) { add(f, page.process, page.address, page.page_id); }
  static void list(EndState& s, Fields& f) {
    add(f, s.registers, s.extended, s.extended_size, s.memory);
    add_all(f, s.pages);
  }

  // Values that an encoder would not write, or that any decoder would refuse at once, are of little use.
  void mend(auto&) {}
  void mend(Event& e) {
    if (!once_in(50)) e.kind = static_cast<EventKind>(static_cast<uint8_t>(e.kind) % 6);
    if (e.time.to_ns < e.time.from_ns) std::swap(e.time.from_ns, e.time.to_ns);
    e.cycle = e.cycle < 1 || e.cycle > kLongestCycle ? 1 + e.cycle % kLongestCycle : e.cycle;
    for (auto* writes : {&e.writes, &e.child_writes}) {
      for (MemoryWrite& write : *writes) {
        write.kind = static_cast<MemoryWrite::Kind>(static_cast<uint8_t>(write.kind) % 4);
        write.length &= (uint64_t{1} << 62) - 1;
        mend_data(write.kind == MemoryWrite::Kind::data, write);
      }
    }
    for (ObjectChange& change : e.changes) {
      change.kind = static_cast<ObjectChange::Kind>(static_cast<uint8_t>(change.kind) % 4);
      change.offset &= (uint64_t{1} << 62) - 1;
      change.length &= (uint64_t{1} << 62) - 1;
      mend_data(change.kind == ObjectChange::Kind::data, change);
    }
  }
  static void mend_data(bool has_data, auto& record) {
    constexpr uint64_t kMost = 1 << 20;
    if (!has_data) record.data.clear();
    if (has_data && record.length < kMost) record.data.resize(record.length);
    if (has_data) record.length = record.data.size();
  }
  void mend(IntervalRecord& r) {
    r.kind = static_cast<CheckpointKind>(static_cast<uint8_t>(r.kind) % 3);
    r.threads %= 4096;
  }
  void mend(IntervalEnd& r) {
    auto state = once_in(2) ? decode_end_state(r.state) : std::nullopt;
    if (!state) return;
    change_field(*state);
    r.state = encode(*state);
  }
  void mend(Mapping& m) {
    if (once_in(20)) return;
    m.start &= ~(kPageSize - 1);
    m.end &= ~(kPageSize - 1);
    if (m.end < m.start) std::swap(m.start, m.end);
    if (m.object_size) *m.object_size &= (uint64_t{1} << 62) - 1;
  }

  // Leaves out, repeats, swaps or changes an element after the first `kept` ones.
  template <typename T>
  void change_list(std::vector<T>& list, size_t kept = 0) {
    if (list.size() <= kept) return;
    const auto any = [&] { return list.begin() + static_cast<ptrdiff_t>(kept + below(list.size() - kept)); };
    switch (below(8)) {
      case 0:
        list.erase(any());
        break;
      case 1: {
        T again = *any();
        list.insert(any(), std::move(again));
        break;
      }
      case 2:
        std::swap(*any(), *any());
        break;
      default:
        change_element(*any());
    }
  }
  void change_element(JournalRecord& record) {
    std::visit([&](auto& held) { change_field(held); }, record);
  }
  template <typename T>
  void change_element(T& element) {
    change_field(element);
  }
  void change_element(ProcessState& process) {
    if (once_in(3)) {
      change_field(process);
      if (once_in(4)) process.memory_of = static_cast<uint32_t>(below(3));
    } else {
      change_list(process.mappings);
    }
  }
  void change_element(Event& event) {
    switch (below(12)) {
      case 0:
        event.map = MapSource{below(4), 0, below(4), 4096 * below(4)};
        break;
      case 1:
        event.registers.emplace().general = Bytes(below(3) ? sizeof(user_regs_struct) : below(300));
        break;
      case 2:
        event.send = Send{1, number(10), number(1000)};
        break;
      case 3:
        event.receive.emplace().parts.push_back({{1, below(10)}, 0, number(10), 0});
        break;
      case 4:
        event.writes.push_back({any_number(), number(8), MemoryWrite::Kind::zeros, {}});
        break;
      case 5:
        event.changes.push_back({ObjectChange::Kind::size, below(4), number(4096), 0, 0, {}});
        break;
      case 6:
        event.child_writes = event.writes;
        break;
      default:
        change_field(event);
        return;
    }
    mend(event);
  }
  uint64_t any_number() { return number(seen_.empty() ? 0 : any_of(seen_)); }

  void change_events(TraceParts& parts) {
    if (parts.events.empty()) return;
    auto& events = any_of(parts.events).second;
    auto& others = any_of(parts.events).second;
    switch (below(20)) {
      case 0:
        std::swap(events, others);
        break;
      case 1:
        if (!events.empty() && !others.empty()) std::swap(any_of(events), any_of(others));
        break;
      case 2:
        if (!events.empty()) events.resize(below(events.size()));
        break;
      case 3:
        if (!events.empty() && !others.empty()) take_part(any_of(events), any_of(others));
        break;
      default:
        change_list(events);
    }
  }
  // Takes over a part of another event, apart from its call.
  void take_part(Event& event, const Event& other) {
    switch (below(7)) {
      case 0:
        event.writes = other.writes;
        break;
      case 1:
        event.receive = other.receive;
        break;
      case 2:
        event.send = other.send;
        break;
      case 3:
        event.map = other.map;
        break;
      case 4:
        event.registers = other.registers;
        break;
      case 5:
        event.child_unit = other.child_unit, event.child_thread = other.child_thread;
        break;
      default:
        event.args = other.args, event.number = other.number;
    }
  }

  void change_image(TraceParts& parts) {
    if (parts.images.empty()) return;
    auto& image = any_of(parts.images);
    const uint64_t what = below(20);
    if (what == 0) return std::swap(image.header, any_of(parts.images).header);
    if (what == 1) return std::swap(image.pages, any_of(parts.images).pages);
    if (what < 5) return change_list(image.pages);
    auto* const state = std::get_if<UnitState>(&image.header);
    if (!state) return change_bytes(std::get<Bytes>(image.header));
    if (what < 12) return change_list(state->processes);
    if (what < 16) return change_list(state->threads);
    if (what < 17) return change_list(state->zero_pages);
    if (what < 18) return state->zero_pages.push_back({static_cast<uint32_t>(below(2)), any_number()});
    uint32_t* const fields[] = {&state->first_joined_thread, &state->first_joined_process, &state->trigger,
                                &state->next_thread, &state->next_process};
    change_value(*fields[below(std::size(fields))]);
  }
  void change_pages(TraceParts& parts) {
    if (parts.pages.empty()) return;
    if (once_in(8)) return std::swap(any_of(parts.pages), any_of(parts.pages));
    any_of(any_of(parts.pages)) = static_cast<uint8_t>(random_());
  }
  void change_payloads(TraceParts& parts) {
    if (parts.payloads.empty()) return;
    auto& payloads = any_of(parts.payloads).second;
    if (payloads.empty()) return;
    auto& [event, bytes] = any_of(payloads);
    if (once_in(2)) {
      change_value(event);
    } else {
      change_bytes(bytes);
    }
  }

  std::mt19937_64 random_;
  std::vector<uint64_t> seen_;  // values of other records
};

}  // namespace redrive
