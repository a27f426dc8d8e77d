#include "logstore/volume_writer.h"

#include <utility>

namespace redrive {
namespace {

constexpr size_t kQueuedBatches = 4;

}  // namespace

VolumeWriter::VolumeWriter(Storage& storage, std::string directory, FirstError& first_error, SpareBlocks& spare)
    : storage_(storage),
      files_{std::move(directory)},
      first_error_(first_error),
      journal_(storage, files_.journal()),
      images_(storage, files_, journal_),
      writer_(storage, files_, journal_, unsynced_, spare) {
  batches_.emplace(kQueuedBatches, [this](Batch& batch) {
    if (!first_error_.failed()) first_error_.keep(writer_.write(batch));
  });
}

Result<void> VolumeWriter::begin(const Settings& settings, std::vector<std::string> above) {
  TRY(storage_.make_directory(files_.events()));
  journal_.add(settings);
  TRY(write_journal());
  begun_ = std::move(above);
  begun_.push_back(files_.directory);
  return {};
}

void VolumeWriter::note(const JournalRecord& record) {
  if (!closed_ && !first_error_.failed()) journal_.add(record);
}

void VolumeWriter::write(Batch batch, bool last) {
  if (closed_) return;
  if (!last && !begun_.empty()) {
    batch.unsynced = std::exchange(begun_, {});
    batch.unsynced.push_back(files_.journal());
  }
  if (batch.empty() && journal_.buffered() == 0) return;
  batches_->add(std::move(batch));
}

void VolumeWriter::wait_until_idle() {
  if (!closed_) batches_->wait_until_idle();
}

Result<void> VolumeWriter::write_journal() {
  ASSIGN_OR_RETURN(const uint64_t written, journal_.write());
  bytes_ += written;
  return {};
}

Result<TraceWriter::ImageStats> VolumeWriter::write_image(UnitId unit, IntervalIndex interval, const ReadImage& read) {
  const Lock lock(images_mutex_);
  TRY(first_error_.outcome());
  if (finished_) return Error{"the part of the trace that the image belongs to is finished"};
  bool storage_failed = false;
  auto written = images_.write(unit, interval, read, storage_failed);
  if (!written && storage_failed) first_error_.keep(written.error());
  if (!written) return written;
  bytes_ += written->bytes;
  images_.announce();
  auto announced = write_journal();
  first_error_.keep(announced);
  if (!announced) return announced.error();
  return written;
}

Result<void> VolumeWriter::publish_images() {
  const Lock lock(images_mutex_);
  TRY(first_error_.outcome());
  if (finished_ || !images_.pending()) return {};
  const auto publish = [&]() REQUIRES(images_mutex_) -> Result<void> {
    const UnsyncedFiles::Taken synced = unsynced_.take();
    TRY(images_.publish(synced.paths));
    for (const auto& of : synced.payloads) journal_.add(of);
    TRY(write_journal());
    return storage_.sync({files_.journal()});
  };
  auto published = publish();
  first_error_.keep(published);
  return published;
}

void VolumeWriter::end_images(UnitId unit) {
  const Lock lock(images_mutex_);
  images_.end_unit(unit);
}

Result<void> VolumeWriter::finish(const RecordingEnd& end) {
  closed_ = true;
  unsynced_.add(std::exchange(begun_, {}), {});
  batches_.reset();
  TRY(first_error_.outcome());
  const Lock lock(images_mutex_);
  JournalEnd last{end, {}};
  ASSIGN_OR_RETURN(last.files, writer_.close());
  if (const RecordWriter& lists = images_.images(); lists.exists()) {
    last.files.push_back({TraceFiles::images_name(), lists.written(), lists.items()});
  }
  UnsyncedFiles::Taken unsynced_now = unsynced_.take();
  if (const PageStoreWriter& pages = images_.pages(); pages.exists()) {
    last.files.push_back({TraceFiles::pages_name(), pages.bytes(), pages.pages()});
  }
  TRY(images_.sync(unsynced_now.paths));
  for (const auto& of : unsynced_now.payloads) journal_.add(of);
  journal_.add(last);
  TRY(write_journal());
  TRY(storage_.sync({files_.journal()}));
  finished_ = true;
  return {};
}

void VolumeWriter::enter(UnitId unit, EventIndex first_event, IntervalIndex first_interval) {
  inside_.insert(unit);
  first_events_[unit] = first_event;
  const Lock lock(mutex_);
  first_intervals_[unit] = first_interval;
}

std::optional<IntervalIndex> VolumeWriter::first_interval(UnitId unit) const {
  const Lock lock(mutex_);
  const auto first = first_intervals_.find(unit);
  return first == first_intervals_.end() ? std::nullopt : std::optional(first->second);
}

}  // namespace redrive
