// check_trace(): compares every byte of every file with its checksums, and every record with what it should say.
#include <fmt/format.h>

#include <map>
#include <set>
#include <unordered_set>

#include "logstore/certificate.h"
#include "logstore/trace_state.h"

namespace redrive {
namespace {

class Checker {
 public:
  explicit Checker(const Trace& trace) : trace_(trace) {}

  template <typename T>
  bool note(const Result<T>& result) {
    if (!result) add(result.error().message);
    return static_cast<bool>(result);
  }
  void note(const std::vector<Error>& errors) {
    for (const auto& error : errors) add(error.message);
  }
  void add(const std::string& message) {
    if (known_.insert(message).second) found_.push_back(message);
  }

  // Adds the units to `damaged` whose events cannot all be read.
  void check_volume(const Volume& volume, std::set<UnitId>& damaged) {
    note(volume.journal->check());
    for (const auto& [unit, lazy] : volume.segments) {
      auto segment = volume.segment(unit);
      if (!note(segment)) damaged.insert(unit);
      if (!segment || !*segment || !(*segment)->has_own_file()) continue;
      const auto found = (*segment)->file().check();
      note(found);
      if (!found.empty()) damaged.insert(unit);
    }
    const auto shared = volume.short_events();
    if (note(shared) && *shared) note((*shared)->check());
    for (const auto& all : {&Volume::open_all_images, &Volume::open_all_pages}) {
      const auto file = (volume.*all)();
      if (note(file) && *file) note((*file)->check());
    }
    for (const auto& [unit, lazy] : volume.payload_files) {
      auto added = volume.payloads(unit);
      if (note(added) && *added) note((*added)->file().check());
    }
  }

  void check_events(UnitId unit) {
    note(trace_.for_each_event(unit, 0, trace_.event_count(unit), [](EventIndex, const Event&) { return true; }));
  }

  void check_certificate() { note(kept_certificate(trace_)); }

  std::vector<std::string> take() { return std::move(found_); }

 private:
  const Trace& trace_;
  std::vector<std::string> found_;
  std::unordered_set<std::string> known_;  // what is in it
};

}  // namespace

std::vector<std::string> check_trace(const Trace& trace) {
  const Trace::State& state = trace.state();
  Checker checker(trace);
  std::set<UnitId> damaged;
  for (const auto& volume : state.volumes) checker.check_volume(*volume, damaged);
  for (const auto& [unit, its] : state.shown) {
    if (!damaged.contains(unit)) checker.check_events(unit);
  }
  for (const auto& [key, image] : state.images) checker.note(trace.image(key.first, key.second));
  std::map<std::string, Result<void>> copies;  // several files can have the same contents
  for (const auto& [id, file] : state.file_records) {
    const auto [copy, is_new] = copies.try_emplace(file.copy);
    if (is_new) copy->second = state.verify_copy(file);
    checker.note(copy->second);
  }
  checker.check_certificate();
  return checker.take();
}

}  // namespace redrive
