// catalog.sqlite: what people query, derived from the journal and the segments.
#include "logstore/catalog.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "logstore/block_sums.h"
#include "logstore/trace_files.h"

namespace redrive {

void CatalogCounts::receive(const Receive& receive) {
  messages++;
  message_bytes += receive.length();
  if (receive.logged) keep(receive.length());
}

void CatalogCounts::keep(uint64_t bytes) {
  logged_messages++;
  logged_bytes += bytes;
}

// A later record of the same interval replaces the earlier one.
void CatalogTally::add(const IntervalRecord& interval) {
  Unit& of = unit(interval.unit);
  if (interval.interval >= of.first_events.size()) of.first_events.resize(interval.interval + 1);
  of.first_events[interval.interval] = interval.first_event;
  of.counts.resize(of.first_events.size());
}

CatalogTally::Unit& CatalogTally::unit(UnitId unit) {
  Unit& found = units_[unit];
  found.id = unit;
  return found;
}

void CatalogTally::add(Unit& of, EventIndex index, const Event& event) {
  while (of.current + 1 < of.first_events.size() && of.first_events[of.current + 1] <= index) of.current++;
  CatalogCounts& count = of.counts[of.current];
  count.events++;
  count.repeats += event.repeat;
  if (event.send && event.child_unit) {
    unit(event.child_unit).born_at_ns = event.send->at_ns;
  } else if (event.send) {
    CatalogCounts& channel = channels_[event.send->channel];
    channel.sends++;
    channel.sent_bytes += event.send->length;
  }
  if (!event.receive || event.receive->parts.empty()) {
    for (const auto& write : event.writes) count.input_bytes += write.data.size();
    return;
  }
  const Receive& receive = *event.receive;
  count.receive(receive);
  channels_[receive.channel].receive(receive);
  for (size_t part = 0; part < receive.parts.size(); part++) {
    messages_.push_back({{of.id, index},
                         part,
                         static_cast<IntervalIndex>(of.current),
                         receive.logged,
                         receive.arrival,
                         receive.channel,
                         receive.at_ns,
                         receive.parts[part]});
  }
}

void CatalogTally::add_payload(uint64_t channel, uint64_t bytes) { channels_[channel].keep(bytes); }

void CatalogTally::end(UnitId unit) {
  auto ended = units_.extract(unit);
  if (ended) ended_.push_back({unit, ended.mapped().born_at_ns, std::move(ended.mapped().counts)});
}

void CatalogTally::end_all() {
  while (!units_.empty()) end(units_.begin()->first);
}

CatalogTally::Channels CatalogTally::take_channels(bool all) {
  constexpr size_t kFew = 1024;
  return all || channels_.size() > kFew ? std::exchange(channels_, {}) : Channels();
}

namespace {

Result<void> fill_settings(Database& database, const Trace& trace) {
  ASSIGN_OR_RETURN(auto insert, Inserter::prepare(database, "settings", 2));
  const Settings& s = trace.settings();
  std::string command;
  for (const auto& word : s.command) command += (command.empty() ? "" : " ") + word;
  TRY(insert("policy", s.policy));
  TRY(insert("critical_path_s", s.critical_path_s));
  TRY(insert("checkpoint_period_s", s.checkpoint_period_s));
  TRY(insert("bound_s", s.bound_s));
  TRY(insert("restore_cost_s", s.restore_cost_s));
  TRY(insert("command", command));
  TRY(insert("working_directory", s.working_directory));
  TRY(insert("host", s.host));
  TRY(insert("started_unix_ns", s.started_unix_ns));
  TRY(insert("finished", trace.finished()));
  TRY(insert("exit_status", trace.end().exit_status));
  TRY(insert("end_reason", trace.end().reason));
  TRY(insert("wall_s", trace.end().wall_s));
  return insert("skipped_checkpoints", trace.end().skipped_checkpoints);
}

// Tables for what was counted, with one row for each partial count; at the end they are added up.
constexpr const char* kCounted =
    "CREATE TABLE counted(unit INTEGER, interval INTEGER, born_at_ns INTEGER, events INTEGER, repeats INTEGER, "
    "messages INTEGER, logged_messages INTEGER, message_bytes INTEGER, logged_bytes INTEGER, input_bytes INTEGER);"
    "CREATE TABLE counted_channels(channel INTEGER, sends INTEGER, sent_bytes INTEGER, messages INTEGER, "
    "logged_messages INTEGER, message_bytes INTEGER, logged_bytes INTEGER);"
    "CREATE TABLE counted_payloads(unit INTEGER, event INTEGER, bytes INTEGER, PRIMARY KEY(unit, event)) WITHOUT ROWID";

// The sums of one interval.
struct CountedInterval {
  UnitId unit = 0;
  IntervalIndex interval = 0;
  std::optional<uint64_t> born_at_ns;
  CatalogCounts counts;
};

// Returns the sums in the order of units and intervals.
class CountedIntervals {
 public:
  static Result<CountedIntervals> read(const Database& database) {
    ASSIGN_OR_RETURN(auto rows, Selector::prepare(
                                    database,
                                    "SELECT unit, interval, max(born_at_ns), sum(events), sum(repeats), sum(messages), "
                                    "sum(logged_messages), sum(message_bytes), sum(logged_bytes), sum(input_bytes) "
                                    "FROM counted GROUP BY unit, interval ORDER BY unit, interval"));
    return CountedIntervals(std::move(rows));
  }

  // The sums of the unit, which must come after all units that were asked for before; one element if there are none.
  Result<std::vector<CountedInterval>> of(UnitId unit) {
    std::vector<CountedInterval> found;
    for (;; ahead_.reset()) {
      if (!ahead_) {
        ASSIGN_OR_RETURN(const bool more, rows_.next());
        if (!more) break;
        ahead_ = row();
      }
      if (ahead_->unit > unit) break;
      if (ahead_->unit == unit) found.push_back(*ahead_);
    }
    if (found.empty()) found.push_back({unit, 0, {}, {}});
    return found;
  }

 private:
  explicit CountedIntervals(Selector rows) : rows_(std::move(rows)) {}
  CountedInterval row() const {
    CountedInterval counted;
    counted.unit = static_cast<UnitId>(rows_.number(0));
    counted.interval = static_cast<IntervalIndex>(rows_.number(1));
    if (!rows_.is_null(2)) counted.born_at_ns = rows_.number(2);
    CatalogCounts& c = counted.counts;
    c.events = rows_.number(3), c.repeats = rows_.number(4), c.messages = rows_.number(5);
    c.logged_messages = rows_.number(6), c.message_bytes = rows_.number(7);
    c.logged_bytes = rows_.number(8), c.input_bytes = rows_.number(9);
    return counted;
  }

  Selector rows_;
  std::optional<CountedInterval> ahead_;
};

// Payloads that were kept after all, in the order of units and receives.
class CountedPayloads {
 public:
  static Result<CountedPayloads> read(const Database& database) {
    ASSIGN_OR_RETURN(auto rows, Selector::prepare(database,
                                                  "SELECT unit, event, bytes FROM counted_payloads "
                                                  "ORDER BY unit, event"));
    return CountedPayloads(std::move(rows));
  }

  // Adds those of the unit, which must come after all units that were asked for before.
  Result<void> add_to(std::vector<CountedInterval>& counted, const std::vector<IntervalRecord>& intervals) {
    const UnitId unit = counted.front().unit;
    for (;; ahead_ = false) {
      if (!ahead_) {
        ASSIGN_OR_RETURN(ahead_, rows_.next());
        if (!ahead_) return {};
      }
      if (rows_.number(0) > unit) return {};
      if (rows_.number(0) < unit) continue;
      const auto after = std::upper_bound(intervals.begin(), intervals.end(), rows_.number(1),
                                          [](EventIndex event, const auto& i) { return event < i.first_event; });
      const auto interval = static_cast<size_t>(std::max<ptrdiff_t>(after - intervals.begin(), 1) - 1);
      if (interval < counted.size()) counted[interval].counts.keep(rows_.number(2));
    }
  }

 private:
  explicit CountedPayloads(Selector rows) : rows_(std::move(rows)) {}

  Selector rows_;
  bool ahead_ = false;  // whether there is a current row
};

Result<void> fill_units(Database& database, const Trace& trace) {
  ASSIGN_OR_RETURN(auto units, Inserter::prepare(database, "units", 10));
  ASSIGN_OR_RETURN(auto intervals, Inserter::prepare(database, "intervals", 16));
  ASSIGN_OR_RETURN(auto all_counted, CountedIntervals::read(database));
  ASSIGN_OR_RETURN(auto payloads, CountedPayloads::read(database));
  for (const auto& unit : trace.units()) {
    const auto& list = trace.intervals(unit.unit);
    ASSIGN_OR_RETURN(auto counted, all_counted.of(unit.unit));
    TRY(payloads.add_to(counted, list));
    CatalogCounts sum;
    for (const auto& one : counted) sum.events += one.counts.events, sum.repeats += one.counts.repeats;
    const std::string joined = fmt::format("{}", fmt::join(unit.joined, " "));
    TRY(units(unit.unit, trace.unit_name(unit.unit), unit.pid, list.empty() ? "" : list.back().command,
              unit.parent.unit, unit.parent.event, counted.front().born_at_ns, joined, sum.events, sum.repeats));
    for (const IntervalRecord& i : list) {
      const CatalogCounts c = i.interval < counted.size() ? counted[i.interval].counts : CatalogCounts();
      const IntervalEnd* end = trace.interval_end(i.unit, i.interval);
      std::optional<double> cpu_s;
      if (end) cpu_s = static_cast<double>(end->cpu_ns) / 1e9;
      TRY(intervals(i.unit, i.interval, name(i.kind), i.has_image, i.pid, i.command, i.first_event, c.events, c.repeats,
                    cpu_s, i.pause_ns, c.messages, c.logged_messages, c.message_bytes, c.logged_bytes, c.input_bytes));
    }
  }
  return {};
}

// Channels that a killed recorder did not write to the journal are listed without kind and name.
Result<void> fill_channels(Database& database, const Trace& trace) {
  ASSIGN_OR_RETURN(auto insert, Inserter::prepare(database, "channels", 9));
  ASSIGN_OR_RETURN(auto rows, Selector::prepare(database,
                                                "SELECT channel, sum(sends), sum(sent_bytes), sum(messages), "
                                                "sum(logged_messages), sum(message_bytes), sum(logged_bytes) "
                                                "FROM counted_channels GROUP BY channel ORDER BY channel"));
  std::map<uint64_t, std::pair<ChannelRecord, CatalogCounts>> channels;
  for (const auto& record : trace.channels()) channels[record.channel].first = record;
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, rows.next());
    if (!more) break;
    CatalogCounts& c = channels[rows.number(0)].second;
    c.sends = rows.number(1), c.sent_bytes = rows.number(2), c.messages = rows.number(3);
    c.logged_messages = rows.number(4), c.message_bytes = rows.number(5), c.logged_bytes = rows.number(6);
  }
  for (const auto& [id, channel] : channels) {
    const auto& [r, c] = channel;
    TRY(insert(id, r.kind, r.name, c.sends, c.sent_bytes, c.messages, c.logged_messages, c.message_bytes,
               c.logged_bytes));
  }
  return {};
}

Result<void> fill_lists(Database& database, const Trace& trace) {
  ASSIGN_OR_RETURN(auto files, Inserter::prepare(database, "files", 4));
  for (const auto& [id, file] : trace.files()) TRY(files(id, file.path, file.copy, file.size));
  ASSIGN_OR_RETURN(auto refused, Inserter::prepare(database, "refused", 4));
  for (const auto& refusal : trace.refusals()) TRY(refused(refusal.unit, refusal.what, refusal.answer, refusal.count));
  ASSIGN_OR_RETURN(auto unsure, Inserter::prepare(database, "unsure", 3));
  for (const auto& one : trace.unsure()) TRY(unsure(one.unit, one.event, one.reason));
  ASSIGN_OR_RETURN(auto interceptions, Inserter::prepare(database, "interceptions", 3));
  for (const auto& one : trace.interceptions()) TRY(interceptions(one.unit, one.served, one.stopped));
  ASSIGN_OR_RETURN(auto sites, Inserter::prepare(database, "stopping_sites", 5));
  for (const auto& site : trace.stopping_sites()) {
    TRY(sites(site.file, site.offset, site.instruction, site.stops, site.patchable));
  }
  return {};
}

// The times of each unit's sends, in the order of events.
struct SendTime {
  EventIndex event;
  uint64_t at_ns;
};
using SendTimes = std::map<UnitId, std::vector<SendTime>>;

std::optional<uint64_t> send_time(const SendTimes& times, EventRef sender) {
  const auto unit = times.find(sender.unit);
  if (unit == times.end()) return std::nullopt;
  const auto at = std::lower_bound(unit->second.begin(), unit->second.end(), sender.event,
                                   [](const SendTime& time, EventIndex event) { return time.event < event; });
  if (at == unit->second.end() || at->event != sender.event) return std::nullopt;
  return at->at_ns;
}

Result<SendTimes> send_times(const Trace& trace) {
  SendTimes sends;
  for (const auto& unit : trace.units()) {
    auto& times = sends[unit.unit];
    TRY(trace.for_each_event(unit.unit, 0, trace.event_count(unit.unit), [&](EventIndex index, const Event& event) {
      if (event.send) times.push_back({index, event.send->at_ns});
      return true;
    }));
  }
  return sends;
}

Result<BlockSums> sum_file(Storage& storage, const std::string& path, uint64_t stamp) {
  ASSIGN_OR_RETURN(const auto file, storage.open(path));
  BlockSummer summer;
  Bytes block(kSumBlock);
  for (uint64_t at = 0; at < file->size(); at += kSumBlock) {
    ASSIGN_OR_RETURN(const size_t n, file->read(at, block));
    summer.add(std::span(block).first(n));
  }
  BlockSums sums = summer.sums();
  sums.stamp = stamp;
  return sums;
}

}  // namespace

Result<std::unique_ptr<CatalogWriter>> CatalogWriter::create(Storage& storage, std::string path) {
  ASSIGN_OR_RETURN(auto file, storage.create(path));
  ASSIGN_OR_RETURN(auto database, Database::open(storage.has_real_paths() ? path : ":memory:"));
  std::unique_ptr<CatalogWriter> made(new CatalogWriter(storage, path, std::move(file), std::move(database)));
  TRY(made->database_.run("BEGIN"));
  TRY(made->database_.run(catalog_schema()));
  TRY(made->database_.run(kCounted));
  ASSIGN_OR_RETURN(made->insert_messages_, RowsInserter::prepare(made->database_, "messages", 14));
  ASSIGN_OR_RETURN(made->insert_counts_, Inserter::prepare(made->database_, "counted", 10));
  ASSIGN_OR_RETURN(made->insert_channel_, Inserter::prepare(made->database_, "counted_channels", 7));
  return made;
}

CatalogWriter::~CatalogWriter() {
  for (const auto& left : {path_, sums_path(path_)}) {
    if (storage_.exists(left)) (void)static_cast<bool>(storage_.remove(left));
  }
}

Result<void> CatalogWriter::add(std::span<const CatalogMessage> messages) {
  values_.clear();
  for (const auto& m : messages) {
    values_.insert(values_.end(), {m.receiver.unit, m.receiver.event, m.part, m.interval, m.sent.sender.unit,
                                   m.sent.sender.event, m.sent.offset, m.sent.length, m.sent.hash, m.logged, m.arrival,
                                   m.channel, m.at_ns, m.sent.sent_at_ns});
  }
  return (*insert_messages_)(values_);
}

Result<void> CatalogWriter::add(std::span<const CatalogTally::Ended> ended, const CatalogTally::Channels& channels) {
  for (const auto& unit : ended) {
    for (IntervalIndex i = 0; i < unit.intervals.size(); ++i) {
      const CatalogCounts& c = unit.intervals[i];
      TRY((*insert_counts_)(unit.unit, i, i == 0 ? unit.born_at_ns : std::nullopt, c.events, c.repeats, c.messages,
                            c.logged_messages, c.message_bytes, c.logged_bytes, c.input_bytes));
    }
  }
  for (const auto& [id, c] : channels) {
    TRY((*insert_channel_)(id, c.sends, c.sent_bytes, c.messages, c.logged_messages, c.message_bytes, c.logged_bytes));
  }
  return {};
}

Result<void> CatalogWriter::note_payload(EventRef receiver, uint64_t bytes) {
  if (!insert_payload_) {
    ASSIGN_OR_RETURN(insert_payload_, Inserter::prepare(database_, "counted_payloads", 3));
  }
  return (*insert_payload_)(receiver.unit, receiver.event, bytes);
}

Result<void> CatalogWriter::publish(const Trace& trace, CatalogTally& tally, std::vector<std::string> unsynced) {
  if (insert_payload_) {
    TRY(
        database_.run("UPDATE messages SET logged = 1 WHERE EXISTS (SELECT 1 FROM counted_payloads AS p "
                      "WHERE p.unit = messages.unit AND p.event = messages.event)"));
  }
  tally.end_all();
  TRY(add(tally.take_ended(), tally.take_channels(true)));
  insert_counts_.reset();
  insert_channel_.reset();
  insert_payload_.reset();
  TRY(fill_settings(database_, trace));
  TRY(fill_units(database_, trace));
  TRY(fill_channels(database_, trace));
  TRY(fill_lists(database_, trace));
  TRY(database_.run("DROP TABLE counted; DROP TABLE counted_channels; DROP TABLE counted_payloads"));
  TRY(database_.run("COMMIT"));
  if (!storage_.has_real_paths()) TRY(file_->append(database_.contents()));
  ASSIGN_OR_RETURN(const BlockSums sums, sum_file(storage_, path_, trace.fingerprint()));
  TRY(write_sums(storage_, path_, sums));
  unsynced.insert(unsynced.end(), {path_, sums_path(path_)});
  TRY(storage_.sync(unsynced));
  // Sums without a catalog mean nothing, so a kill between these steps does not leave anything that looks like damage.
  const std::string place = TraceFiles{trace.directory()}.catalog();
  if (storage_.exists(place)) TRY(storage_.remove(place));
  TRY(storage_.rename(sums_path(path_), sums_path(place)));
  return storage_.rename(path_, place);
}

Result<void> build_catalog(const Trace& trace) {
  constexpr size_t kMessagesAtOnce = 1024;
  const std::string path = temporary(TraceFiles{trace.directory()}.catalog());
  ASSIGN_OR_RETURN(const auto writer, CatalogWriter::create(trace.storage(), path));
  ASSIGN_OR_RETURN(const SendTimes sends, send_times(trace));
  CatalogTally tally;
  for (const auto& unit : trace.units()) {
    for (const auto& interval : trace.intervals(unit.unit)) tally.add(interval);
    const auto add_messages = [&] {
      for (auto& message : tally.messages()) message.sent.sent_at_ns = send_time(sends, message.sent.sender);
      auto added = writer->add(tally.messages());
      tally.messages().clear();
      return added;
    };
    CatalogTally::Unit& counts = tally.unit(unit.unit);
    Result<void> added;
    TRY(trace.for_each_event(unit.unit, 0, trace.event_count(unit.unit), [&](EventIndex index, const Event& event) {
      tally.add(counts, index, event);
      if (tally.messages().size() >= kMessagesAtOnce) added = add_messages();
      return static_cast<bool>(added);
    }));
    if (!added) return added;
    TRY(add_messages());
    tally.end(unit.unit);
    TRY(writer->add(tally.take_ended(), tally.take_channels()));
  }
  return writer->publish(trace, tally);
}

Result<std::string> catalog_path(const Trace& trace) {
  Storage& storage = trace.storage();
  const std::string path = TraceFiles{trace.directory()}.catalog();
  if (storage.exists(path) && storage.exists(sums_path(path))) {
    ASSIGN_OR_RETURN(const BlockSums sums, read_sums(storage, path));
    if (sums.stamp == trace.fingerprint()) {
      TRY(verify_sums(storage, path, sums));
      return path;
    }
  }
  TRY(build_catalog(trace));
  return path;
}

}  // namespace redrive
