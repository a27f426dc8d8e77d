// Makes catalog.sqlite (FORMAT.md, "Catalog") from a trace's events, as they are written or as they are read again.
// Both ways give the same catalog.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "logstore/database.h"
#include "logstore/trace.h"

namespace redrive {

// Counts for an interval or a channel.
struct CatalogCounts {
  uint64_t events = 0;
  uint64_t repeats = 0;
  uint64_t messages = 0;
  uint64_t logged_messages = 0;
  uint64_t message_bytes = 0;
  uint64_t logged_bytes = 0;
  uint64_t input_bytes = 0;
  uint64_t sends = 0;
  uint64_t sent_bytes = 0;

  void receive(const Receive& receive);
  void keep(uint64_t bytes);  // of a message's payload
};

// A row of `messages`: one part of a receive.
struct CatalogMessage {
  EventRef receiver;
  uint64_t part = 0;
  IntervalIndex interval = 0;
  bool logged = false;
  uint64_t arrival = 0;
  uint64_t channel = 0;
  uint64_t at_ns = 0;
  MessagePart sent;
};

// Counts a trace's events, which are given in the order of each unit, and lists their messages. What is taken from it
// at the end of each unit does not stay in memory; what remains are the units that have not ended, and their intervals.
class CatalogTally {
 public:
  // The interval of a unit that has ended. Another one may follow, whose counts must be added.
  struct Ended {
    UnitId unit = 0;
    std::optional<uint64_t> born_at_ns;  // in its parent's interval, if its fork says so
    std::vector<CatalogCounts> intervals;
  };
  using Channels = std::map<uint64_t, CatalogCounts>;
  // A unit that has not ended.
  struct Unit {
    UnitId id = 0;
    std::vector<EventIndex> first_events;  // of its intervals
    size_t current = 0;
    std::vector<CatalogCounts> counts = std::vector<CatalogCounts>(1);
    std::optional<uint64_t> born_at_ns;
  };
  // Valid until its end().
  Unit& unit(UnitId unit);
  // Must be called before the interval's first event.
  void add(const IntervalRecord& interval);
  void add(Unit& unit, EventIndex index, const Event& event);
  // The bytes of an unlogged receive on the channel were kept after all. CatalogWriter::note_payload() counts them for
  // the interval.
  void add_payload(uint64_t channel, uint64_t bytes);

  // The messages since this was last cleared.
  std::vector<CatalogMessage>& messages() { return messages_; }
  // No event of the unit follows.
  void end(UnitId unit);
  void end_all();
  // The counts of ended units since the previous call.
  std::vector<Ended> take_ended() { return std::exchange(ended_, {}); }
  // The same for channels. Returns nothing as long as there are few, unless `all` is set.
  Channels take_channels(bool all = false);

 private:
  std::unordered_map<UnitId, Unit> units_;
  Channels channels_;
  std::vector<Ended> ended_;
  std::vector<CatalogMessage> messages_;
};

// A catalog that is being made, in a temporary file. For one thread at a time.
class CatalogWriter {
 public:
  static Result<std::unique_ptr<CatalogWriter>> create(Storage& storage, std::string path);
  // Removes the file unless it was published.
  ~CatalogWriter();

  Result<void> add(std::span<const CatalogMessage> messages);
  Result<void> add(std::span<const CatalogTally::Ended> ended, const CatalogTally::Channels& channels);
  // The messages of the receive, of so many bytes, count as logged, although they were or will be listed as unlogged.
  Result<void> note_payload(EventRef receiver, uint64_t bytes);
  // Adds everything that the trace's journal and the tally hold, and moves the catalog into its place.
  Result<void> publish(const Trace& trace, CatalogTally& tally, std::vector<std::string> unsynced = {});

 private:
  CatalogWriter(Storage& storage, std::string path, std::unique_ptr<File> file, Database database)
      : storage_(storage), path_(std::move(path)), file_(std::move(file)), database_(std::move(database)) {}

  Storage& storage_;
  std::string path_;
  std::unique_ptr<File> file_;  // for a storage that SQLite cannot write to
  Database database_;
  std::optional<RowsInserter> insert_messages_;
  std::vector<std::optional<uint64_t>> values_;  // of the messages that are being added
  std::optional<Inserter> insert_counts_;
  std::optional<Inserter> insert_channel_;
  std::optional<Inserter> insert_payload_;  // exists from the first payload on
};

}  // namespace redrive
