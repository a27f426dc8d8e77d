#include "supervisor/image_worker.h"

#include <algorithm>
#include <cstring>

#include "checkpoint/address_space.h"

namespace redrive {
namespace {
constexpr size_t kMaxQueuedPages = 65536;  // 256 MiB

bool is_zero(const uint8_t* page) { return page[0] == 0 && std::memcmp(page, page + 1, kPageSize - 1) == 0; }

void note_zero_pages(ImageJob& job) {
  for (const auto& process : job.state.processes) {
    auto mapping = process.mappings.begin();
    for (const auto& page : job.pages) {
      if (page.process != process.process || !is_zero(page.data.get())) continue;
      while (mapping != process.mappings.end() && mapping->end <= page.address) ++mapping;
      if (mapping == process.mappings.end()) break;
      if (mapping->file && page.address >= mapping->start) {
        job.state.zero_pages.push_back({page.process, page.address});
      }
    }
  }
}

}  // namespace

void ImageJob::add_page(uint32_t process, Address address, const uint8_t* data) {
  auto page = std::make_unique_for_overwrite<uint8_t[]>(kPageSize);
  std::memcpy(page.get(), data, kPageSize);
  for (const auto& patch : patches) {
    if (patch.process != process) continue;
    const Address first = std::max(address, patch.address);
    const Address last = std::min(address + kPageSize, patch.address + patch.original.size());
    if (first >= last) continue;
    std::memcpy(page.get() + (first - address), patch.original.data() + (first - patch.address), last - first);
  }
  pages.push_back({process, address, std::move(page)});
}

ImageWorker::ImageWorker(TraceWriter& writer) : writer_(writer), thread_([this] { run(); }) {}

ImageWorker::~ImageWorker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ImageWorker::add(ImageJob job) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queued_pages_ == 0 || queued_pages_ + job.pages.size() <= kMaxQueuedPages; });
  queued_pages_ += job.pages.size();
  if (job.copy >= 0) ++copies_;
  queue_.push_back(std::move(job));
  changed_.notify_all();
}

size_t ImageWorker::copies_alive() const {
  const std::lock_guard lock(mutex_);
  return copies_;
}

std::vector<ImageWorker::Done> ImageWorker::take_done() {
  const std::lock_guard lock(mutex_);
  for (const auto& done : done_) {
    if (done.copy >= 0) --copies_;
  }
  return std::exchange(done_, {});
}

void ImageWorker::wait_until_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
}

void ImageWorker::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    ImageJob job = std::move(queue_.front());
    queue_.pop_front();
    const size_t pages = job.pages.size();
    busy_ = true;
    lock.unlock();
    Done done{job.copy, job.original, std::nullopt};
    if (auto result = publish(job); !result) done.error = result.error();
    job = {};
    lock.lock();
    busy_ = false;
    queued_pages_ -= pages;
    done_.push_back(std::move(done));
    changed_.notify_all();
  }
}

Result<void> ImageWorker::publish(ImageJob& job) {
  // Pages of the copy are gathered in address order between those that were read while the unit was stopped.
  if (job.copy >= 0) {
    const auto& mappings = job.state.processes.front().mappings;
    const auto wanted = [](const Mapping& m) { return m.shared_object == 0; };
    const auto take = [&](Address address, const uint8_t* data) {
      job.add_page(job.state.processes.front().process, address, data);
      return true;
    };
    TRY(visit_pages(job.memory, mappings, wanted, take));
    std::sort(job.pages.begin(), job.pages.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
  }
  note_zero_pages(job);
  Encoder header;
  encode(job.state, header);
  size_t at = 0;
  const auto next = [&](PageRef& page) {
    if (at == job.pages.size()) return false;
    page = {job.pages[at].process, job.pages[at].address, job.pages[at].data.get()};
    ++at;
    return true;
  };
  auto stats = writer_.publish_image(job.unit, job.interval, header.data(), next);
  if (!stats) return stats.error();
  return {};
}

}  // namespace redrive
