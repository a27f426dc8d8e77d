#include "logstore/journal.h"

#include <type_traits>

#include "base/assert.h"
#include "logstore/fields.h"

namespace redrive {
namespace {

// The fields of each record are listed once, in fields().
//
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
    io.added(r.began_ns);
    io.added(r.threads);
  } else if constexpr (std::is_same_v<T, IntervalEnd>) {
    io(r.unit, r.interval, r.cpu_ns, r.end_event);
    io.added(r.state);
    io.added(r.clock_error_ns);
    io.added(r.ended_ns);
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
    io.added(r.end.criu_images.made);
    io.added(r.end.criu_images.failed);
    io.added(r.end.criu_images.first_error);
  } else if constexpr (std::is_same_v<T, Interception>) {
    io(r.unit, r.served, r.stopped);
  } else if constexpr (std::is_same_v<T, StoppingSite>) {
    io(r.file, r.offset, r.instruction, r.stops, r.patchable);
  } else if constexpr (std::is_same_v<T, PayloadsPublished>) {
    io(r.unit, r.size, r.items);
  } else if constexpr (std::is_same_v<T, ShortUnit>) {
    io(r.unit, r.first_item, r.events);
  } else if constexpr (std::is_same_v<T, WallClockRecord>) {
    io(r.unchanged_ns, r.since_ns, r.offset_ns, r.error_ns);
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
                                 RecordType::image_written,
                                 RecordType::wall_clock};
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
