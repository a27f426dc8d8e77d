// Makes catalog.sqlite (FORMAT.md, "Catalog"): from a trace's events as they are written, or as they are read again.
// Either way it gets to know the same and says the same.
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

// What is counted of an interval, or of a channel.
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

// Counts a trace's events, given in each unit's order, and lists their messages. Grows with what is taken from it only
// in the end: the units that have not ended and their intervals.
class CatalogTally {
 public:
  // Of a unit that has ended. There may be another one of the same, to be added.
  struct Ended {
    UnitId unit = 0;
    std::optional<uint64_t> born_at_ns;  // in its parent's interval; if its fork says so
    std::vector<CatalogCounts> intervals;
  };
  using Channels = std::map<uint64_t, CatalogCounts>;
  // Of one that has not ended.
  struct Unit {
    UnitId id = 0;
    std::vector<EventIndex> first_events;  // of its intervals
    size_t current = 0;
    std::vector<CatalogCounts> counts = std::vector<CatalogCounts>(1);
    std::optional<uint64_t> born_at_ns;
  };
  // There until its end().
  Unit& unit(UnitId unit);
  // Before the interval's first event.
  void add(const IntervalRecord& interval);
  void add(Unit& unit, EventIndex index, const Event& event);
  // What an unlogged receive on the channel brought was kept after all. Of its interval it is counted by
  // CatalogWriter::note_payload().
  void add_payload(uint64_t channel, uint64_t bytes);

  // The messages since they were last cleared.
  std::vector<CatalogMessage>& messages() { return messages_; }
  // No event of the unit follows.
  void end(UnitId unit);
  void end_all();
  // What was counted of ended units since this was last asked.
  std::vector<Ended> take_ended() { return std::exchange(ended_, {}); }
  // The same of channels. Unless `all` is wanted, nothing as long as they are few.
  Channels take_channels(bool all = false);

 private:
  std::unordered_map<UnitId, Unit> units_;
  Channels channels_;
  std::vector<Ended> ended_;
  std::vector<CatalogMessage> messages_;
};

// A catalog in the making, in a temporary file. Of one thread at a time.
class CatalogWriter {
 public:
  static Result<std::unique_ptr<CatalogWriter>> create(Storage& storage, std::string path);
  // Removes the file if it was not published.
  ~CatalogWriter();

  Result<void> add(std::span<const CatalogMessage> messages);
  Result<void> add(std::span<const CatalogTally::Ended> ended, const CatalogTally::Channels& channels);
  // The receive's messages, of so many bytes, are logged ones, though they were or will be listed as unlogged.
  Result<void> note_payload(EventRef receiver, uint64_t bytes);
  // Adds all that the trace's journal and the tally say, and puts the catalog into its place.
  Result<void> publish(const Trace& trace, CatalogTally& tally, std::vector<std::string> unsynced = {});

 private:
  CatalogWriter(Storage& storage, std::string path, std::unique_ptr<File> file, Database database)
      : storage_(storage), path_(std::move(path)), file_(std::move(file)), database_(std::move(database)) {}

  Storage& storage_;
  std::string path_;
  std::unique_ptr<File> file_;  // of a storage that SQLite cannot write to
  Database database_;
  std::optional<RowsInserter> insert_messages_;
  std::vector<std::optional<uint64_t>> values_;  // of the messages that are being added
  std::optional<Inserter> insert_counts_;
  std::optional<Inserter> insert_channel_;
  std::optional<Inserter> insert_payload_;  // from the first on
};

}  // namespace redrive
