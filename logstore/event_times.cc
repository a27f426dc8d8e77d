#include "logstore/event_times.h"

#include <algorithm>

#include "base/assert.h"

namespace redrive {
namespace {

constexpr uint64_t kStampUnit_ns = 10'000;
constexpr uint64_t kLongestRun_ns = 800'000;
constexpr uint64_t kGoodError_ns = 950'000;
constexpr uint64_t kLatestStamp = UINT64_MAX / kStampUnit_ns;

}  // namespace

void TimesWriter::add(const EventTime& time) {
  ASSERT(time.from_ns <= time.to_ns);
  Run next{0, 0, 1};
  if (time.known()) {
    since_ns_ = std::max(since_ns_, time.from_ns);
    next = {since_ns_, std::max(since_ns_, time.to_ns), 1};
  }
  const bool alike = run_.events > 0 && (run_.to_ns > 0) == time.known();
  if (alike && (next.to_ns <= run_.to_ns || next.to_ns - run_.from_ns <= kLongestRun_ns)) {
    run_.to_ns = next.to_ns;
    ++run_.events;
    return;
  }
  end_run();
  run_ = next;
}

// Returns where it begins.
uint64_t TimesWriter::write(const Run& run, uint64_t before, Encoder& out) {
  const uint64_t from = run.from_ns / kStampUnit_ns;
  const uint64_t to = std::min(run.to_ns / kStampUnit_ns + (run.to_ns % kStampUnit_ns ? 1 : 0), kLatestStamp);
  out.u(run.events);
  out.u(from - before);
  out.u(to - from);
  return from;
}

void TimesWriter::end_run() {
  if (run_.events > 0) before_ = write(run_, before_, out_);
  run_ = {};
}

Bytes TimesWriter::block() const {
  Encoder out;
  out.raw(out_.data().data(), out_.size());
  if (run_.events > 0) write(run_, before_, out);
  return out.take();
}

void TimesWriter::clear() {
  out_.clear();
  run_ = {};
  since_ns_ = before_ = 0;
}

EventTime TimesReader::next() {
  if (at_ == events_) {
    events_ = in_.u();
    before_ += in_.u();
    const uint64_t length = in_.u();
    if (events_ == 0 || before_ > kLatestStamp || length > kLatestStamp - before_) in_.fail();
    if (!in_.ok()) return {};
    from_ns_ = before_ * kStampUnit_ns;
    to_ns_ = from_ns_ + length * kStampUnit_ns;
    at_ = 0;
  }
  ++at_;
  if (to_ns_ == 0) return {};
  const double place = (static_cast<double>(at_) - 0.5) / static_cast<double>(events_);
  uint64_t guess_ns = from_ns_ + static_cast<uint64_t>(static_cast<double>(to_ns_ - from_ns_) * place);
  // In a run that allows it, no guess may be very wrong.
  if (to_ns_ - from_ns_ <= 2 * kGoodError_ns) {
    guess_ns = std::clamp(guess_ns, to_ns_ - std::min(to_ns_, kGoodError_ns), from_ns_ + kGoodError_ns);
  }
  last_ns_ = std::clamp(std::max(last_ns_, guess_ns), from_ns_, to_ns_);
  return {from_ns_, to_ns_, last_ns_};
}

}  // namespace redrive
