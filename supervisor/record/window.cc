#include "supervisor/record/window.h"

#include <algorithm>
#include <utility>

#include "base/notice.h"
#include "supervisor/record/checkpoints/image_worker.h"
#include "supervisor/record/messages/messages.h"
#include "supervisor/record/stops/checkpointer.h"
#include "supervisor/record/tracees/tracees.h"

namespace redrive {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kVolumes = 8;  // in a window: what it holds may be more by one of them
constexpr std::chrono::nanoseconds kShortest = 1s;

// Programs that make fewer events would mostly be recorded for the sake of their checkpoints: one volume is as long as
// the window.
constexpr uint64_t kFewInSecond = 1000;

}  // namespace

void Window::look() {
  if (!exists()) return;
  if (is_due()) cut();
  const auto volumes = writer_.volumes();
  const bool all_left =
      std::all_of(volumes.begin(), std::prev(volumes.end()), [](const auto& volume) { return volume.left; });
  if (!all_left) urge();
  // A unit that sleeps in a call that cannot be interrupted holds up nobody else.
  if (!beginning_ && (all_left || tracer_.now() - began_ > kShortest)) beginning_ = volumes.back().bytes;
  finish_left();
  remove_old();
}

// A program that rests adds nothing that could become old.
bool Window::is_due() const {
  const auto age = tracer_.now() - began_;
  if (age < kShortest || !beginning_) return false;
  const uint64_t bytes = writer_.volumes().back().bytes;
  const bool large = limits_.keep_bytes && bytes >= std::max(limits_.keep_bytes / kVolumes, 2 * *beginning_);
  const uint64_t events = tracees_.events() - events_before_;
  const bool few = events < kFewInSecond * static_cast<uint64_t>(age / 1s);
  const bool old = limits_.keep_ns && age >= std::chrono::nanoseconds(limits_.keep_ns / (few ? 1 : kVolumes));
  return large || (old && events > 0);
}

TraceWriter::VolumeNumber Window::cut(const Settings* changed) {
  messages_.write_channels();
  if (!writer_.begin_volume(changed)) return newest();  // the writer keeps the error, and the recording ends
  messages_.write_open_channels();
  began_ = tracer_.now();
  beginning_.reset();
  events_before_ = tracees_.events();
  urge();
  return newest();
}

TraceWriter::VolumeNumber Window::newest() const { return writer_.volumes().back().number; }

std::vector<Unit*> Window::before(TraceWriter::VolumeNumber volume) const {
  const auto volumes = writer_.volumes();
  std::vector<Unit*> found;
  for (const auto& [id, unit] : tracees_.units()) {
    const bool goes_on = std::any_of(volumes.begin(), volumes.end(), [&, unit = id](const auto& each) {
      return each.number >= volume && writer_.is_in_volume(each.number, {unit, UINT64_MAX});
    });
    if (!unit->processes.empty() && !goes_on) found.push_back(unit.get());
  }
  return found;
}

void Window::urge() {
  for (Unit* const unit : before(newest())) checkpointer_.request(*unit);
}

bool Window::complete(TraceWriter::VolumeNumber volume) {
  finish_left();
  const auto volumes = writer_.volumes();
  return std::all_of(volumes.begin(), volumes.end(),
                     [&](const auto& each) { return each.number >= volume || each.finished; });
}

void Window::finish_left() {
  const auto now = tracer_.now();
  for (const auto& volume : writer_.volumes()) {
    if (!volume.left || volume.closed) continue;
    left_[volume.number] = now;
    messages_.keep_held([&](EventRef receiver) { return writer_.is_in_volume(volume.number, receiver); });
    writer_.close_volume(volume.number);
    RecordingEnd end;
    end.reason = kGoesOn;
    end.wall_s = std::chrono::duration<double>(now - started_).count();
    images_.finish(volume.number, end);
  }
}

void Window::remove_old() {
  const auto now = tracer_.now();
  auto volumes = writer_.volumes();
  uint64_t bytes = 0;
  for (const auto& volume : volumes) bytes += volume.bytes;
  TraceWriter::VolumeNumber newest_finished = 0;
  for (const auto& volume : volumes) {
    if (volume.finished) newest_finished = volume.number;
  }
  for (const auto& volume : volumes) {
    if (!volume.finished) continue;
    // However short the window is, a snapshot finds a volume.
    const bool old = limits_.keep_ns && volume.number != newest_finished &&
                     now - left_.at(volume.number) > std::chrono::nanoseconds(limits_.keep_ns);
    const bool too_many = limits_.keep_bytes && bytes > limits_.keep_bytes;
    if (!old && !too_many) return;
    left_.erase(volume.number);
    if (const auto removed = writer_.remove_volume(volume.number); !removed && !std::exchange(says_stay_, true)) {
      notice("{}: what is older than the window stays on the disk", removed.error().message);
    }
    bytes -= volume.bytes;
  }
}

}  // namespace redrive
