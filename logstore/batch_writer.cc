#include "logstore/batch_writer.h"

#include <algorithm>
#include <utility>

namespace redrive {
namespace {

// Of zstd. Level 4 needs a tenth less space than level 1 for exchanges over a Unix socket and for redis, and 70 instead
// of 50 ms for 1.4 million events of redis. Level 5 needs twice the time, for 1 % less there.
constexpr int kEventLevel = 4;
constexpr size_t kOpenFiles = 256;  // make -j has thousands of units, a process has 1024 descriptors
constexpr size_t kSpareBlocks = 8;

}  // namespace

void UnsyncedFiles::add(const std::vector<std::string>& paths, const std::vector<PayloadsPublished>& payloads) {
  const Lock lock(mutex_);
  paths_.insert(paths.begin(), paths.end());
  payloads_.insert(payloads_.end(), payloads.begin(), payloads.end());
}

UnsyncedFiles::Taken UnsyncedFiles::take() {
  const Lock lock(mutex_);
  Taken taken{{paths_.begin(), paths_.end()}, std::exchange(payloads_, {})};
  paths_.clear();
  return taken;
}

std::unique_ptr<EventBlockWriter> SpareBlocks::take() {
  const Lock lock(mutex_);
  if (spare_.empty()) return std::make_unique<EventBlockWriter>();
  auto block = std::move(spare_.back());
  spare_.pop_back();
  return block;
}

void SpareBlocks::give_back(std::unique_ptr<EventBlockWriter> block) {
  block->clear();
  const Lock lock(mutex_);
  if (spare_.size() < kSpareBlocks) spare_.push_back(std::move(block));
}

BatchWriter::BatchWriter(Storage& storage, const TraceFiles& files, JournalWriter& journal, UnsyncedFiles& unsynced,
                         SpareBlocks& spare)
    : storage_(storage),
      files_(files),
      journal_(journal),
      unsynced_(unsynced),
      spare_(spare),
      compressor_(kEventLevel),
      short_units_(storage, files.segment(TraceFiles::kShortUnits), FileKind::events, TraceFiles::kShortUnits),
      payloads_(storage, files) {}

// The journal is written before the events. It holds what is needed to understand them: where an interval begins with
// another program, with joined threads or with a preemption, and the files that they map. The reader ignores an
// interval without its events.
Result<void> BatchWriter::write(Batch& batch) {
  TRY(storage_.sync(batch.unsynced));
  TRY(write_journal());
  for (auto& block : batch.blocks) {
    if (block.last && !events_.contains(block.unit)) {
      add_short_unit(block);
    } else {
      TRY(write_block(block));
    }
    spare_.give_back(std::move(block.events));
  }
  TRY(write_short_units());
  for (const auto& unit : batch.ended) end(unit);
  for (const auto& payload : batch.payloads) payloads_.add(payload.receiver, payload.bytes);
  if (payloads_.buffered() > PayloadWriter::kWorthWriting) TRY(write_payloads());
  return write_journal();
}

Result<std::vector<FileEnd>> BatchWriter::close() {
  std::vector<FileEnd> files;
  std::sort(ended_.begin(), ended_.end(), [](const auto& a, const auto& b) { return a.unit < b.unit; });
  for (auto& ended : ended_) files.push_back(std::move(ended.file));
  TRY(write_payloads());
  if (short_units_.exists()) {
    files.push_back({TraceFiles::segment_name(TraceFiles::kShortUnits), short_units_.written(), short_units_.items()});
  }
  return files;
}

Result<void> BatchWriter::write_journal() {
  ASSIGN_OR_RETURN(const uint64_t written, journal_.write());
  bytes_ += written;
  return {};
}

Result<void> BatchWriter::write_payloads() {
  TRY(payloads_.write());
  const auto written = payloads_.take_written();
  std::vector<std::string> paths;
  for (const auto& of : written) {
    paths.insert(paths.end(), {files_.directory, files_.payloads(), files_.payloads(of.unit)});
  }
  unsynced_.add(paths, written);
  return {};
}

void BatchWriter::end(const Batch::Ended& unit) {
  const auto found = events_.find(unit.unit);
  if (found == events_.end()) return;
  std::erase(open_, &found->second);
  ended_.push_back({unit.unit, {TraceFiles::segment_name(unit.unit), found->second.written(), unit.events}});
  events_.erase(found);
}

Result<void> BatchWriter::write_block(const Batch::Block& block) {
  if (open_.size() >= kOpenFiles) close_files();
  RecordWriter& writer =
      events_.try_emplace(block.unit, storage_, files_.segment(block.unit), FileKind::events, block.unit).first->second;
  const uint64_t before = writer.written();
  const bool fresh = !writer.exists();
  writer.add(RecordType::timed_event_rows, block.events->block(), block.count, &compressor_);
  if (!writer.is_open()) open_.push_back(&writer);
  TRY(writer.write());
  bytes_ += writer.written() - before;
  unsynced_.add({writer.path()});
  if (fresh) unsynced_.add({files_.events()});
  return {};
}

// Making a file takes longer than it takes most programs of a shell script to make their events.
void BatchWriter::add_short_unit(const Batch::Block& block) {
  new_short_units_.push_back({block.unit, short_units_.items(), block.count});
  short_units_.add(RecordType::timed_event_rows, block.events->block(), block.count, &compressor_);
}

Result<void> BatchWriter::write_short_units() {
  if (new_short_units_.empty()) return {};
  const uint64_t before = short_units_.written();
  const bool fresh = !short_units_.exists();
  TRY(short_units_.write());
  bytes_ += short_units_.written() - before;
  for (const auto& unit : std::exchange(new_short_units_, {})) journal_.add(unit);
  unsynced_.add({short_units_.path()});
  if (fresh) unsynced_.add({files_.events()});
  return {};
}

void BatchWriter::close_files() {
  for (RecordWriter* writer : open_) writer->close();
  open_.clear();
}

}  // namespace redrive
