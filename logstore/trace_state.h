// The contents of a Trace, known only to trace.cc (reading), trace_check.cc (verifying) and trace_additions.cc.
//
// A trace is made of volumes, in the order in which they were begun; mostly there is one. If the oldest were removed
// (record --keep), numbers of events and intervals are shown from 0 on: `Shown` says where a unit's begin.
#pragma once

#include <algorithm>
#include <set>

#include "logstore/copy_verifier.h"
#include "logstore/volume.h"

namespace redrive {

struct Trace::State : TraceFacts {
  State(std::string directory, Storage& s) : files{std::move(directory)}, storage(s) {}
  Result<void> open();

  const TraceFiles files;
  Storage& storage;
  bool locked = false;  // by its writer, before the journal was read
  std::vector<std::unique_ptr<Volume>> volumes;
  const Volume& last_volume() const { return *volumes.back(); }
  // Held while the catalog or the certificate is made: one process at a time. The lock of the trace's directory says
  // that somebody adds to the trace.
  Fd lock_derived() const { return storage.lock(storage.exists(files.volumes()) ? files.volumes() : files.events()); }

  // What is shown of a unit: its newest volumes, as far back as nothing is missing between them.
  struct Shown {
    struct Part {
      Volume* volume = nullptr;
      EventIndex end = 0;  // one past its last event, as stored
    };
    std::vector<Part> parts;
    EventIndex first_event = 0;        // as stored; shown as 0
    IntervalIndex first_interval = 0;  // as stored; shown as 0
  };
  std::map<UnitId, Shown> shown;
  // Whether numbers differ from the stored ones, or senders of messages may not be shown.
  bool renumbered = false;
  Result<void> show(EventRef at, Event& event) const;

  RecordingEnd recording_end;
  std::vector<UnitRecord> units;
  struct StoredImage {
    size_t volume = 0;
    ImagePublished published;
  };
  std::map<std::pair<UnitId, IntervalIndex>, StoredImage> images;
  std::map<UnitId, std::string> names;

  Result<void> verify_copy(const FileRecord& file) const;
  mutable CopyVerifier used_copies{[this](const FileRecord& file) { return verify_copy(file); }};

 private:
  Result<void> open_volumes();
  bool has_begun(uint64_t number) const;
  void find_shown();
  void take_units();
  void take_unit(UnitId unit, const Shown& its);
  void take_facts(Volume& volume);
  std::optional<StoredImage> find_image(const Volume& volume, std::pair<UnitId, IntervalIndex> stored) const;
  EventRef shown_as(EventRef stored) const;  // unit 0 if it is not shown
  void name_units();

  std::set<uint64_t> known_channels;
};

}  // namespace redrive
