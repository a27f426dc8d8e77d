#include "supervisor/cli/list_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <vector>

#include "base/text.h"
#include "base/units.h"
#include "checkpoint/unit_state.h"
#include "supervisor/cli/columns.h"

namespace redrive {
namespace {

using Json = nlohmann::ordered_json;

// The contents of pages, by their ids in the page store: who has them.
class Contents {
 public:
  void add(const Image& image) {
    ++images_;
    for (const Image::Page& page : image.pages) {
      Seen& seen = seen_[page.page_id];
      if (seen.last == images_) continue;
      seen.last = images_;
      ++seen.images;
    }
  }
  bool only_one_has(uint64_t page_id) const { return seen_.at(page_id).images == 1; }
  uint64_t distinct() const { return seen_.size(); }

 private:
  struct Seen {
    uint32_t images = 0;  // how many have it
    uint32_t last = 0;    // the last one that has it
  };
  std::unordered_map<uint64_t, Seen> seen_;
  uint32_t images_ = 0;
};

struct ListedCheckpoint {
  IntervalRecord interval;
  size_t processes = 0, threads = 0;  // of an image
  uint64_t bytes = 0;                 // of its pages
  uint64_t shared_bytes = 0;          // of these, in pages that another image has as well
};

template <typename Visit>
Result<void> for_each_image(const Trace& trace, const Visit& visit) {
  for (const UnitRecord& unit : trace.units()) {
    for (const IntervalRecord& interval : trace.intervals(unit.unit)) {
      if (!interval.has_image) continue;
      ASSIGN_OR_RETURN(const Image image, trace.image(unit.unit, interval.interval));
      TRY(visit(interval, image));
    }
  }
  return {};
}

}  // namespace

Result<int> list_checkpoints(const Trace& trace, bool json) {
  // Images are read twice, because all of them together may be too large for memory.
  Contents contents;
  TRY(for_each_image(trace, [&](const IntervalRecord&, const Image& image) -> Result<void> {
    contents.add(image);
    return {};
  }));
  std::vector<ListedCheckpoint> checkpoints;
  TRY(for_each_image(trace, [&](const IntervalRecord& interval, const Image& image) -> Result<void> {
    ASSIGN_OR_RETURN(const UnitState state, read_state(image.header, interval.unit, interval.interval));
    const auto alone = std::count_if(image.pages.begin(), image.pages.end(),
                                     [&](const Image::Page& page) { return contents.only_one_has(page.page_id); });
    const uint64_t shared = image.pages.size() - static_cast<uint64_t>(alone);
    checkpoints.push_back(
        {interval, state.processes.size(), state.threads.size(), image.pages.size() * kPageSize, shared * kPageSize});
    return {};
  }));

  const uint64_t stored = stored_image_bytes(trace);
  uint64_t bytes = 0, intervals = 0;
  for (const ListedCheckpoint& each : checkpoints) bytes += each.bytes;
  for (const UnitRecord& unit : trace.units()) intervals += trace.intervals(unit.unit).size();
  const uint64_t without = intervals - checkpoints.size();
  const uint64_t distinct = contents.distinct() * kPageSize;
  if (json) {
    Json list = Json::array();
    for (const ListedCheckpoint& each : checkpoints) {
      list.push_back({{"unit", each.interval.unit},
                      {"name", trace.unit_name(each.interval.unit)},
                      {"interval", each.interval.interval},
                      {"checkpoint_kind", name(each.interval.kind)},
                      {"event", each.interval.first_event},
                      {"processes", each.processes},
                      {"threads", each.threads},
                      {"bytes", each.bytes},
                      {"shared_bytes", each.shared_bytes}});
    }
    print_json({{"directory", trace.directory()},
                {"checkpoints", list},
                {"without_image", without},
                {"bytes", bytes},
                {"distinct_bytes", distinct},
                {"stored_bytes", stored}});
    return 0;
  }
  Columns columns(
      {">UNIT", "NAME", ">INTERVAL", "CHECKPOINT", ">BEFORE EVENT", ">PROCESSES", ">THREADS", ">PAGES", ">SHARED"});
  for (const ListedCheckpoint& each : checkpoints) {
    columns.add({fmt::format("{}", each.interval.unit), trace.unit_name(each.interval.unit),
                 fmt::format("{}", each.interval.interval), name(each.interval.kind),
                 fmt::format("{}", each.interval.first_event), fmt::format("{}", each.processes),
                 fmt::format("{}", each.threads), format_size(each.bytes), format_size(each.shared_bytes)});
  }
  columns.print();
  fmt::print("{} with {} of pages: {} if what they share counts once, {} on the disk\n",
             counted(checkpoints.size(), "checkpoint"), format_size(bytes), format_size(distinct), format_size(stored));
  if (without > 0)
    fmt::print("{} without an image: they are re-driven from an earlier one\n", counted(without, "checkpoint"));
  return 0;
}

}  // namespace redrive
