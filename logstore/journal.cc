#include "logstore/journal.h"

#include <type_traits>

#include "base/check.h"

namespace redrive {
namespace {

// The fields of each record are listed once, in fields(); Writing and Reading are the two directions.
class Writing {
 public:
  void field(bool value) { out_.u(value); }
  void field(int32_t value) { out_.s(value); }
  void field(int64_t value) { out_.s(value); }
  void field(uint32_t value) { out_.u(value); }
  void field(uint64_t value) { out_.u(value); }
  void field(double value) { out_.real(value); }
  void field(const std::string& value) { out_.str(value); }
  void field(CheckpointKind value) { out_.u(static_cast<uint64_t>(value)); }
  void field(const EventRef& value) {
    field(value.unit);
    field(value.event);
  }
  void field(const FileEnd& value) {
    field(value.name);
    field(value.size);
    field(value.items);
  }
  template <typename T>
  void field(const std::vector<T>& values) {
    out_.u(values.size());
    for (const auto& value : values) field(value);
  }
  template <typename... T>
  void operator()(const T&... values) {
    (field(values), ...);
  }
  // A field that formats before 4 lack.
  void since_4(uint64_t value, bool absent) {
    if (!absent) field(value);
  }
  void since_5(const Bytes& value) { out_.bytes(value); }
  Bytes take() { return out_.take(); }

 private:
  Encoder out_;
};

class Reading {
 public:
  explicit Reading(std::span<const uint8_t> data) : in_(data) {}
  void field(bool& value) { value = bounded(1); }
  void field(int32_t& value) {
    const int64_t wide = in_.s();
    value = static_cast<int32_t>(wide);
    if (value != wide) in_.fail();
  }
  void field(int64_t& value) { value = in_.s(); }
  void field(uint32_t& value) { value = static_cast<uint32_t>(bounded(UINT32_MAX)); }
  void field(uint64_t& value) { value = in_.u(); }
  void field(double& value) { value = in_.real(); }
  void field(std::string& value) { value = in_.str(); }
  void field(CheckpointKind& value) {
    value = static_cast<CheckpointKind>(bounded(static_cast<uint64_t>(CheckpointKind::image)));
  }
  void field(EventRef& value) {
    field(value.unit);
    field(value.event);
  }
  void field(FileEnd& value) {
    field(value.name);
    field(value.size);
    field(value.items);
  }
  template <typename T>
  void field(std::vector<T>& values) {
    const size_t count = in_.count();
    for (size_t i = 0; i < count && in_.ok(); i++) field(values.emplace_back());
  }
  template <typename... T>
  void operator()(T&... values) {
    (field(values), ...);
  }
  void since_4(uint64_t& value, bool& absent) {
    absent = in_.at_end();
    if (!absent) field(value);
  }
  void since_5(Bytes& value) {
    if (in_.at_end()) return;
    const auto bytes = in_.bytes();
    value.assign(bytes.begin(), bytes.end());
  }
  bool done() const { return in_.ok() && in_.at_end(); }

 private:
  uint64_t bounded(uint64_t limit) {
    const uint64_t value = in_.u();
    if (value > limit) in_.fail();
    return value;
  }
  Decoder in_;
};

// `R` is the record; it is const when it is written.
template <typename Direction, typename R>
void fields(Direction& io, R& r) {
  using T = std::remove_const_t<R>;
  if constexpr (std::is_same_v<T, Settings>) {
    io(r.policy, r.critical_path_s, r.checkpoint_period_s, r.bound_s, r.restore_cost_s, r.command, r.working_directory,
       r.host, r.started_unix_ns);
  } else if constexpr (std::is_same_v<T, UnitRecord>) {
    io(r.unit, r.pid, r.parent, r.joined);
  } else if constexpr (std::is_same_v<T, IntervalRecord>) {
    io(r.unit, r.interval, r.kind, r.first_event, r.has_image, r.pid, r.command, r.pause_ns);
  } else if constexpr (std::is_same_v<T, IntervalEnd>) {
    io(r.unit, r.interval, r.cpu_ns, r.end_event);
    io.since_5(r.state);
  } else if constexpr (std::is_same_v<T, ChannelRecord>) {
    io(r.channel, r.kind, r.name);
  } else if constexpr (std::is_same_v<T, Refusal>) {
    io(r.unit, r.what, r.answer, r.count);
  } else if constexpr (std::is_same_v<T, Unsure>) {
    io(r.unit, r.event, r.reason);
  } else if constexpr (std::is_same_v<T, FileRecord>) {
    io(r.file, r.path, r.copy, r.size);
  } else if constexpr (std::is_same_v<T, ImagePublished> || std::is_same_v<T, ImageWritten>) {
    io(r.unit, r.interval, r.pages, r.file_size, r.store_size, r.store_pages);
    io.since_4(r.first_item, r.own_file);
  } else if constexpr (std::is_same_v<T, JournalEnd>) {
    io(r.end.exit_status, r.end.reason, r.end.wall_s, r.end.skipped_checkpoints, r.files);
  } else if constexpr (std::is_same_v<T, Interception>) {
    io(r.unit, r.served, r.stopped);
  } else if constexpr (std::is_same_v<T, StoppingSite>) {
    io(r.file, r.offset, r.instruction, r.stops, r.patchable);
  } else if constexpr (std::is_same_v<T, PayloadsPublished>) {
    io(r.unit, r.size, r.items);
  } else if constexpr (std::is_same_v<T, ShortUnit>) {
    io(r.unit, r.first_item, r.events);
  } else {
    static_assert(std::is_same_v<T, Join>);
    io(r.unit, r.joined, r.event, r.pid, r.object);
  }
}

// In the order of the alternatives of JournalRecord.
constexpr RecordType kTypes[] = {RecordType::settings,
                                 RecordType::unit,
                                 RecordType::interval,
                                 RecordType::interval_end,
                                 RecordType::channel,
                                 RecordType::refusal,
                                 RecordType::unsure,
                                 RecordType::file,
                                 RecordType::image_published,
                                 RecordType::recording_end,
                                 RecordType::interception,
                                 RecordType::stopping_site,
                                 RecordType::payloads_published,
                                 RecordType::short_unit,
                                 RecordType::join,
                                 RecordType::image_written};
static_assert(std::size(kTypes) == std::variant_size_v<JournalRecord>);

template <size_t kIndex = 0>
bool decode_as(size_t index, std::span<const uint8_t> payload, JournalRecord& record) {
  if constexpr (kIndex < std::variant_size_v<JournalRecord>) {
    if (index != kIndex) return decode_as<kIndex + 1>(index, payload, record);
    Reading in(payload);
    fields(in, record.emplace<kIndex>());
    return in.done();
  }
  return false;
}

}  // namespace

const char* name(CheckpointKind kind) {
  switch (kind) {
    case CheckpointKind::exec:
      return "exec";
    case CheckpointKind::fork:
      return "fork";
    case CheckpointKind::image:
      return "image";
  }
  return "?";
}

RecordType type_of(const JournalRecord& record) { return kTypes[record.index()]; }

Bytes encode(const JournalRecord& record) {
  Writing out;
  std::visit([&](const auto& r) { fields(out, r); }, record);
  return out.take();
}

bool decode(RecordType type, std::span<const uint8_t> payload, JournalRecord& record) {
  for (size_t i = 0; i < std::size(kTypes); i++) {
    if (kTypes[i] == type) return decode_as(i, payload, record);
  }
  return false;
}

void JournalWriter::add(const JournalRecord& record) {
  const Bytes payload = encode(record);
  const Lock lock(mutex_);
  writer_.add(type_of(record), payload);
}

size_t JournalWriter::buffered() {
  const Lock lock(mutex_);
  return writer_.buffered();
}

Result<uint64_t> JournalWriter::write() {
  const Lock lock(mutex_);
  const uint64_t before = writer_.written();
  TRY(writer_.write());
  return writer_.written() - before;
}

}  // namespace redrive
