#include "logstore/trace_additions.h"

#include "base/assert.h"
#include "base/mutex.h"
#include "logstore/block_sums.h"
#include "logstore/image_publisher.h"
#include "logstore/payload_file.h"
#include "logstore/trace_state.h"

namespace redrive {

struct TraceAdditions::State {
  explicit State(const Trace::State& trace)
      : storage(trace.storage),
        files(trace.last_volume().files),
        shown(trace.shown),
        journal(storage, files.journal()),
        images(storage, files, journal),
        payloads(storage, files) {}

  // Continues where the trace ends, or where a process that was killed while adding stopped.
  Result<void> resume(const Volume& trace) EXCLUDES(mutex) {
    const Lock holding(mutex);
    TRY(journal.resume(trace.journal->readable_size(), trace.journal->items()));
    const auto pages = trace.published_pages();
    if (pages.size) TRY(images.pages().resume(pages.size, pages.items));
    const auto lists = trace.published_images();
    if (lists.size) TRY(images.images().resume(lists.size, lists.items));
    for (const auto& [unit, published] : trace.payloads_published) TRY(payloads.resume(published));
    return {};
  }

  // Payloads are published before the image, which may depend on them.
  Result<void> publish() REQUIRES(mutex) {
    TRY(payloads.write());
    const auto written_payloads = payloads.take_written();
    std::vector<std::string> unsynced{files.payloads()};
    for (const auto& of : written_payloads) unsynced.push_back(files.payloads(of.unit));
    if (!written_payloads.empty()) TRY(storage.sync(unsynced));
    for (const auto& of : written_payloads) journal.add(of);
    TRY(images.publish({files.journal()}));
    ASSIGN_OR_RETURN(const uint64_t written, journal.write());
    return written ? storage.sync({files.journal()}) : Result<void>();
  }

  Result<void> keep_error(Result<void> result) REQUIRES(mutex) {
    if (!result && !first_error) first_error = result.error();
    return result;
  }

  // The numbers under which the trace stores what it shows.
  IntervalIndex stored(UnitId unit, IntervalIndex interval) const {
    const auto its = shown.find(unit);
    return its == shown.end() ? interval : interval + its->second.first_interval;
  }
  EventRef stored(EventRef event) const {
    const auto its = shown.find(event.unit);
    return its == shown.end() ? event : EventRef{event.unit, event.event + its->second.first_event};
  }

  Storage& storage;
  const TraceFiles files;  // of the last volume
  const std::map<UnitId, Trace::State::Shown> shown;
  Fd lock;
  JournalWriter journal;
  Mutex mutex;
  ImagePublisher images GUARDED_BY(mutex);
  PayloadWriter payloads GUARDED_BY(mutex);
  std::optional<Error> first_error GUARDED_BY(mutex);
};

TraceAdditions::TraceAdditions(std::unique_ptr<State> state) : state_(std::move(state)) {}
TraceAdditions::~TraceAdditions() = default;

Result<std::unique_ptr<TraceAdditions>> TraceAdditions::begin(const Trace& trace) {
  const std::string& directory = trace.directory();
  if (!trace.finished()) return Error{directory + " is not finished: nothing can be added to it"};
  Storage& storage = trace.storage();
  if (storage.locked(directory)) return Error{directory + " is being prepared by another process"};
  auto state = std::make_unique<State>(trace.state());
  state->lock = storage.lock(directory);
  // Somebody may have added to the trace since it was opened: that would be cut off.
  ASSIGN_OR_RETURN(const auto now, Trace::open(directory, storage));
  if (now->fingerprint() != trace.fingerprint()) {
    return Error{directory + " was changed by another process meanwhile: try again"};
  }
  const std::string mark = state->files.preparing();
  if (!storage.exists(mark)) TRY(storage.create(mark));
  if (!storage.exists(state->files.payloads())) TRY(storage.make_directory(state->files.payloads()));
  // The catalog shows the trace as it was.
  const std::string catalog = trace.state().files.catalog();
  for (const auto& old : {catalog, sums_path(catalog)}) {
    if (storage.exists(old)) TRY(storage.remove(old));
  }
  TRY(storage.sync({directory}));
  TRY(state->resume(trace.state().last_volume()));
  return std::unique_ptr<TraceAdditions>(new TraceAdditions(std::move(state)));
}

Result<void> TraceAdditions::add_image(UnitId unit, IntervalIndex interval, const ReadImage& read) {
  const Lock lock(state_->mutex);
  if (state_->first_error) return *state_->first_error;
  bool storage_failed = false;
  const auto written = state_->images.write(unit, state_->stored(unit, interval), read, storage_failed);
  if (written) return state_->keep_error(state_->publish());
  return storage_failed ? state_->keep_error(written.error()) : Result<void>(written.error());
}

Result<void> TraceAdditions::add_payload(EventRef receiver, std::span<const uint8_t> payload) {
  const Lock lock(state_->mutex);
  if (state_->first_error) return *state_->first_error;
  state_->payloads.add(state_->stored(receiver), payload);
  if (state_->payloads.buffered() < PayloadWriter::kWorthWriting) return {};
  return state_->keep_error(state_->payloads.write());
}

Result<void> TraceAdditions::publish() {
  const Lock lock(state_->mutex);
  if (state_->first_error) return *state_->first_error;
  return state_->keep_error(state_->publish());
}

Result<void> TraceAdditions::finish(const Settings& settings) {
  ASSERT(settings.has_possible_times());
  TRY(publish());
  const Lock lock(state_->mutex);
  state_->journal.add(settings);
  TRY(state_->keep_error(state_->publish()));
  return state_->storage.remove(state_->files.preparing());
}

}  // namespace redrive
