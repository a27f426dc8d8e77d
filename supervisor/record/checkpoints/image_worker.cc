#include "supervisor/record/checkpoints/image_worker.h"

#include <poll.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "supervisor/record/memory/ranges.h"

namespace redrive {
namespace {
constexpr uint64_t kMaxQueued = 256 << 20;
using Clock = std::chrono::steady_clock;
// The time from the first image that is written to its publication, and from one publication to the next. Each costs
// several fsyncs, which take at most half of the time, and a program that ends sooner needs none. What is written and
// not published can be lost with the machine, not with the recorder.
constexpr Clock::duration kPublishEvery = std::chrono::seconds(1);

// Ends a copy that sleeps.
void end(const ImageJob::Copy& copy) {
  if (!copy.pidfd) return;
  syscall(SYS_pidfd_send_signal, copy.pidfd.get(), SIGKILL, nullptr, 0);
  pollfd ended{copy.pidfd.get(), POLLIN, 0};
  while (poll(&ended, 1, -1) < 0 && errno == EINTR) {
  }
}
}  // namespace

void ImageJob::add(uint32_t process, const Mapping& mapping, Address address, std::span<const uint8_t> pages,
                   PageBuffers& buffers) {
  Bytes copy;
  auto original = unpatched(process, address, pages, copy);
  state.note_zero_pages(process, mapping, address, original);
  while (!original.empty()) {
    if (free_bytes == 0) buffer = buffers.take(), free_bytes = PageBuffers::kSize;
    const auto part = original.first(std::min(original.size(), free_bytes));
    uint8_t* const to = buffer.get() + (PageBuffers::kSize - free_bytes);
    PageBuffers::populate(to, part.size());
    std::memcpy(to, part.data(), part.size());
    runs.push_back({process, address, {to, part.size()}, buffer});
    free_bytes -= part.size();
    address += part.size();
    original = original.subspan(part.size());
  }
}

std::span<const uint8_t> ImageJob::unpatched(uint32_t process, Address address, std::span<const uint8_t> pages,
                                             Bytes& copy) const {
  copy.clear();
  for (const auto& patch : patches) {
    const Address first = std::max(address, patch.address);
    const Address last = std::min(address + pages.size(), patch.address + patch.original.size());
    if (patch.process != process || first >= last) continue;
    if (copy.empty()) copy.assign(pages.begin(), pages.end());
    std::memcpy(copy.data() + (first - address), patch.original.data() + (first - patch.address), last - first);
  }
  return copy.empty() ? pages : std::span<const uint8_t>(copy);
}

uint64_t ImageJob::bytes() const {
  uint64_t sum = 0;
  std::set<const uint8_t*> counted;
  for (const auto& run : runs) {
    if (counted.insert(run.pages.data()).second) sum += run.pages.size();
  }
  return sum;
}

ImageWorker::ImageWorker(TraceWriter& writer) : writer_(writer), thread_([this] { run(); }) {}

void ImageWorker::close() {
  {
    const Lock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ImageWorker::add(ImageJob job) {
  const uint64_t bytes = job.bytes();
  const Lock lock(mutex_);
  while (queued_bytes_ != 0 && queued_bytes_ + bytes > kMaxQueued) changed_.wait(mutex_);
  queued_bytes_ += bytes;
  copies_.count += job.copies.size();
  copies_.bytes += job.copied_bytes;
  queue_.push_back(std::move(job));
  changed_.notify_all();
}

void ImageWorker::finish(TraceWriter::VolumeNumber volume, RecordingEnd end) {
  ImageJob job;
  job.volume = {volume, std::move(end)};
  const Lock lock(mutex_);
  queue_.push_back(std::move(job));
  changed_.notify_all();
}

CopiesAlive ImageWorker::copies_alive() const {
  const Lock lock(mutex_);
  return copies_;
}

CriuImages ImageWorker::criu_images() const {
  const Lock lock(mutex_);
  return criu_images_;
}

std::vector<ImageWorker::Done> ImageWorker::take_done() {
  const Lock lock(mutex_);
  for (const auto& done : done_) {
    copies_.count -= done.copies.size();
    copies_.bytes -= done.copied_bytes;
  }
  return std::exchange(done_, {});
}

bool ImageWorker::is_idle() const {
  const Lock lock(mutex_);
  return queue_.empty() && !busy_;
}

void ImageWorker::wait_until_idle() {
  const Lock lock(mutex_);
  while (!queue_.empty() || busy_) changed_.wait(mutex_);
}

void ImageWorker::run() {
  Lock lock(mutex_);
  Clock::time_point publish_at{};
  for (;;) {
    const auto began = Clock::now();
    if (unpublished_ > 0 && began >= publish_at) {
      busy_ = true;
      lock.unlock();
      // The writer keeps an error, and reports it when the recording ends.
      const bool published = static_cast<bool>(writer_.publish_images());
      lock.lock();
      busy_ = false;
      for (; !published && unpublished_ > 0; --unpublished_) {
        done_.push_back({{}, 0, Error{"images could not be published"}});
      }
      unpublished_ = 0;
      const auto ended = Clock::now();
      publish_at = ended + std::max(kPublishEvery, ended - began);
      changed_.notify_all();
      continue;
    }
    if (queue_.empty()) {
      if (closing_) {
        criu_.reset();
        return;
      }
      if (unpublished_ == 0) {
        changed_.wait(mutex_);
      } else {
        changed_.wait_until(mutex_, publish_at);
      }
      continue;
    }
    ImageJob job = std::move(queue_.front());
    queue_.pop_front();
    const uint64_t bytes = job.bytes();
    busy_ = true;
    lock.unlock();
    if (job.volume) {
      static_cast<void>(
          static_cast<bool>(writer_.finish_volume(job.volume->first, job.volume->second)));  // it keeps the error
      lock.lock();
      busy_ = false;
      changed_.notify_all();
      continue;
    }
    Done done;
    if (auto result = write(job); !result) done.error = result.error();
    for (const auto& copy : job.copies) end(copy);
    done.copies = std::move(job.copies);
    done.copied_bytes = job.copied_bytes;
    job = {};
    lock.lock();
    busy_ = false;
    queued_bytes_ -= bytes;
    if (!done.error && unpublished_++ == 0) publish_at = std::max(publish_at, Clock::now() + kPublishEvery);
    done_.push_back(std::move(done));
    changed_.notify_all();
  }
}

namespace {

Result<void> check_wiped(const ImageJob::Copy& copy) {
  if (!copy.known_not_copied) return {};
  ASSIGN_OR_RETURN(const auto mappings, flagged_mappings(copy.pid));
  for (const auto& each : mappings) {
    if (!each.is("wf") || meets_any(each.mapping, *copy.known_not_copied)) continue;
    return Error{"memory is not copied of which this was not known"};
  }
  return {};
}

}  // namespace

// Adds pages of a process, as they would be without patches.
Result<void> ImageWorker::add_pages(ImageJob& job, uint32_t process, const AddPages& add, const ReadPages& read) {
  Bytes buffer;
  return read([&](const Mapping& mapping, Address address, std::span<const uint8_t> pages) {
    const auto original = job.unpatched(process, address, pages, buffer);
    job.state.note_zero_pages(process, mapping, address, original);
    return add(process, address, original);
  });
}

Result<void> ImageWorker::add_copy(ImageJob& job, const ImageJob::Copy& copy, const AddPages& add) {
  TRY(check_wiped(copy));
  const auto wanted = [](const Mapping& m) { return m.shared_object == 0; };
  for (const ProcessState& process : job.state.processes) {
    if (process.process != copy.process) continue;
    TRY(add_pages(job, process.process, add,
                  [&](const VisitRun& visit) { return visit_pages(copy.memory, process.mappings, wanted, visit); }));
  }
  // The pages of a copy that somebody has killed look like pages that were never written.
  if (copy.memory.gone()) return Error{"the copy of the program was killed"};
  return {};
}

Result<void> ImageWorker::add_dump(ImageJob& job, CriuDump& dump, const AddPages& add) {
  ProcessState& process = job.state.processes.front();
  process.files = dump.take_files();
  return add_pages(job, process.process, add,
                   [&](const VisitRun& visit) { return dump.visit_pages(process.mappings, visit); });
}

// What CRIU dumps of a job's copy. Nothing if it is not to, or cannot.
std::optional<CriuDump> ImageWorker::dump(ImageJob& job) {
  if (!job.by_criu) return {};
  auto dumped = try_dump(job);
  const Lock lock(mutex_);
  if (dumped) {
    ++criu_images_.made;
    return std::move(*dumped);
  }
  ++criu_images_.failed;
  if (criu_images_.first_error.empty()) criu_images_.first_error = dumped.error().message;
  return {};
}

Result<CriuDump> ImageWorker::try_dump(ImageJob& job) {
  if (job.copies.size() != 1 || !job.copies.front().pidfd) return Error{""};
  if (!criu_) {
    ASSIGN_OR_RETURN(CriuService started, CriuService::start());
    criu_.emplace(std::move(started));
  }
  ASSIGN_OR_RETURN(const Fd directory, criu_->dump(job.copies.front().pid));
  ASSIGN_OR_RETURN(CriuDump dump, CriuDump::read(directory));
  TRY(dump.expect_memory(job.state.processes.front().mappings));
  return dump;
}

Result<void> ImageWorker::write(ImageJob& job) {
  for (const UnitId ended : job.ended_units) writer_.end_images(ended);
  auto dumped = dump(job);
  const auto read = [&](const AddPages& add) -> Result<Bytes> {
    for (const auto& run : job.runs) TRY(add(run.process, run.address, run.pages));
    if (dumped) {
      TRY(add_dump(job, *dumped, add));
    } else {
      for (const auto& copy : job.copies) TRY(add_copy(job, copy, add));
    }
    Encoder header;
    encode(job.state, header);
    return header.take();
  };
  const auto written = writer_.write_image(job.unit, job.interval, read);
  if (!written) return written.error();
  return {};
}

}  // namespace redrive
