// The window of a recording of which only the last part is kept (record --keep). Every now and then a new volume of the
// trace begins, and each unit goes on in it with a checkpoint, for which it is woken if it sleeps. What is older than
// the window, or more than it may hold, is removed volume by volume: no replay of what is left needs it.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "logstore/trace.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/settings/recorder_limits.h"

namespace redrive {

class Checkpointer;
class ImageWorker;
class Messages;
class Tracees;
struct Unit;

class Window {
 public:
  Window(Tracer& tracer, TraceWriter& writer, const RecorderLimits& limits, Messages& messages, ImageWorker& images,
         Tracees& tracees, Checkpointer& checkpointer)
      : tracer_(tracer),
        writer_(writer),
        limits_(limits),
        messages_(messages),
        images_(images),
        tracees_(tracees),
        checkpointer_(checkpointer) {}

  bool exists() const { return writer_.in_volumes(); }
  // At each tick.
  void look();
  // Begins a volume now, and returns its number. What was recorded before is complete when complete() says so.
  // `changed`: as in TraceWriter::begin_volume().
  TraceWriter::VolumeNumber cut(const Settings* changed = nullptr);
  // Whether all units go on in this volume or a newer one. Finishes those that they have left.
  bool complete(TraceWriter::VolumeNumber volume);
  size_t units_before(TraceWriter::VolumeNumber volume) const { return before(volume).size(); }  // how many do not yet

 private:
  bool is_due() const;
  TraceWriter::VolumeNumber newest() const;
  void urge();
  void finish_left();
  void remove_old();
  std::vector<Unit*> before(TraceWriter::VolumeNumber volume) const;

  Tracer& tracer_;
  TraceWriter& writer_;
  const RecorderLimits& limits_;
  Messages& messages_;
  ImageWorker& images_;
  Tracees& tracees_;
  Checkpointer& checkpointer_;

  const Clock::time_point started_ = tracer_.now();
  Clock::time_point began_ = started_;                           // the newest volume
  uint64_t events_before_ = 0;                                   // of all units, when it began
  std::optional<uint64_t> beginning_;                            // bytes that it had when all units had gone on in it
  std::map<TraceWriter::VolumeNumber, Clock::time_point> left_;  // when the last unit had left it
  bool says_stay_ = false;                                       // that an old volume could not be removed was said
};

}  // namespace redrive
