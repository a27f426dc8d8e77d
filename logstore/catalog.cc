// catalog.sqlite: what people query, derived from the journal and the segments when somebody asks for it.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "base/units.h"
#include "logstore/block_sums.h"
#include "logstore/database.h"
#include "logstore/trace.h"
#include "logstore/trace_files.h"
#include "logstore/trace_state.h"

namespace redrive {
namespace {

// Counts for an interval or a channel.
struct Counts {
  uint64_t events = 0;
  uint64_t repeats = 0;
  uint64_t messages = 0;
  uint64_t logged_messages = 0;
  uint64_t message_bytes = 0;
  uint64_t logged_bytes = 0;
  uint64_t input_bytes = 0;
  uint64_t sends = 0;
  uint64_t sent_bytes = 0;

  void receive(const Receive& receive) {
    const uint64_t length = receive.length();
    messages++;
    message_bytes += length;
    if (!receive.logged) return;
    logged_messages++;
    logged_bytes += length;
  }
};
using Channels = std::map<uint64_t, Counts>;

// When messages were sent and units were born.
struct Departures {
  struct Send {
    EventIndex event;
    uint64_t at_ns;
  };
  std::map<UnitId, std::vector<Send>> sends;  // of each unit, in the order of events
  std::map<UnitId, uint64_t> births;

  std::optional<uint64_t> send_ns(EventRef sender) const {
    const auto unit = sends.find(sender.unit);
    if (unit == sends.end()) return std::nullopt;
    const auto at = std::lower_bound(unit->second.begin(), unit->second.end(), sender.event,
                                     [](const Send& send, EventIndex event) { return send.event < event; });
    if (at == unit->second.end() || at->event != sender.event) return std::nullopt;
    return at->at_ns;
  }
  std::optional<uint64_t> birth_ns(UnitId unit) const {
    const auto found = births.find(unit);
    return found == births.end() ? std::nullopt : std::optional(found->second);
  }
};

Result<Departures> departures_in(const Trace& trace) {
  Departures found;
  for (const auto& unit : trace.units()) {
    auto& sends = found.sends[unit.unit];
    TRY(trace.for_each_event(unit.unit, 0, trace.event_count(unit.unit), [&](EventIndex index, const Event& event) {
      if (event.send) sends.push_back({index, event.send->at_ns});
      if (event.send && event.child_unit) found.births[event.child_unit] = event.send->at_ns;
      return true;
    }));
  }
  return found;
}

// Lists the messages of all units, and counts by the way.
class Tally {
 public:
  static Result<Tally> begin(const Database& database, const Departures& departures) {
    ASSIGN_OR_RETURN(auto insert, RowsInserter::prepare(database, "messages", kColumns));
    return Tally(std::move(insert), departures);
  }

  // Returns the counts of each of the unit's intervals.
  Result<std::vector<Counts>> count(const Trace& trace, UnitId unit) {
    const auto& intervals = trace.intervals(unit);
    std::vector<Counts> counts(std::max<size_t>(intervals.size(), 1));
    size_t current = 0;
    Result<void> added;
    TRY(trace.for_each_event(unit, 0, trace.event_count(unit), [&](EventIndex index, const Event& event) {
      while (current + 1 < intervals.size() && intervals[current + 1].first_event <= index) ++current;
      add(event, counts[current]);
      if (event.receive) list({unit, index}, current, *event.receive, wall_clock(trace).at(event.time));
      if (rows_.size() >= kValuesAtOnce) added = insert_rows();
      return static_cast<bool>(added);
    }));
    if (!added) return added.error();
    TRY(insert_rows());
    return counts;
  }
  Channels& channels() { return channels_; }

 private:
  static constexpr int kColumns = 16;
  static constexpr size_t kValuesAtOnce = 1024 * kColumns;

  Tally(RowsInserter insert, const Departures& departures) : insert_(std::move(insert)), departures_(departures) {}

  void add(const Event& event, Counts& counts) {
    counts.events++;
    counts.repeats += event.repeat;
    if (event.send && !event.child_unit) {
      Counts& channel = channels_[event.send->channel];
      channel.sends++;
      channel.sent_bytes += event.send->length;
    }
    if (event.receive && !event.receive->parts.empty()) {
      counts.receive(*event.receive);
      channels_[event.receive->channel].receive(*event.receive);
    } else {
      for (const auto& write : event.writes) counts.input_bytes += write.data.size();
    }
  }
  void list(EventRef receiver, size_t interval, const Receive& receive, const std::optional<WallTime>& time) {
    std::optional<uint64_t> unix_ns, error_ns;
    if (time) unix_ns = static_cast<uint64_t>(time->unix_ns), error_ns = time->error_ns;
    for (size_t i = 0; i < receive.parts.size(); ++i) {
      const MessagePart& part = receive.parts[i];
      rows_.insert(rows_.end(), {receiver.unit, receiver.event, i, interval, part.sender.unit, part.sender.event,
                                 part.offset, part.length, part.hash, receive.logged, receive.arrival, receive.channel,
                                 receive.at_ns, departures_.send_ns(part.sender), unix_ns, error_ns});
    }
  }
  Result<void> insert_rows() {
    TRY(insert_(rows_));
    rows_.clear();
    return {};
  }

  RowsInserter insert_;
  const Departures& departures_;
  Channels channels_;
  std::vector<std::optional<uint64_t>> rows_;  // not yet inserted
};

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
  TRY(insert("exit_status", exit_status(trace)));
  TRY(insert("end_reason", trace.end().reason));
  TRY(insert("wall_s", trace.end().wall_s));
  return insert("skipped_checkpoints", trace.end().skipped_checkpoints);
}

std::optional<int64_t> unix_ns(const Trace& trace, uint64_t monotonic_ns) {
  const auto time = wall_clock(trace).at(monotonic_ns);
  return time ? std::optional(time->unix_ns) : std::nullopt;
}

Result<void> fill_units(Database& database, const Trace& trace, const Departures& departures, Tally& tally) {
  ASSIGN_OR_RETURN(auto units, Inserter::prepare(database, "units", 10));
  ASSIGN_OR_RETURN(auto intervals, Inserter::prepare(database, "intervals", 19));
  for (const auto& unit : trace.units()) {
    const auto& list = trace.intervals(unit.unit);
    ASSIGN_OR_RETURN(const auto counts, tally.count(trace, unit.unit));
    Counts sum;
    for (const auto& one : counts) sum.events += one.events, sum.repeats += one.repeats;
    const std::string joined = fmt::format("{}", fmt::join(unit.joined, " "));
    TRY(units(unit.unit, trace.unit_name(unit.unit), unit.pid, list.empty() ? "" : list.back().command,
              unit.parent.unit, unit.parent.event, departures.birth_ns(unit.unit), joined, sum.events, sum.repeats));
    for (const IntervalRecord& i : list) {
      const Counts& c = counts[i.interval];
      const IntervalEnd* end = trace.interval_end(i.unit, i.interval);
      std::optional<double> cpu_s;
      if (end) cpu_s = seconds(end->cpu_ns);
      TRY(intervals(i.unit, i.interval, name(i.kind), i.has_image, i.pid, i.command, i.first_event, c.events, c.repeats,
                    cpu_s, i.pause_ns, c.messages, c.logged_messages, c.message_bytes, c.logged_bytes, c.input_bytes,
                    end ? end->clock_error_ns : 0, unix_ns(trace, i.began_ns),
                    unix_ns(trace, end ? end->ended_ns : 0)));
    }
  }
  return {};
}

// Channels that a killed recorder did not write to the journal are listed without kind and name.
Result<void> fill_channels(Database& database, const Trace& trace, const Channels& counted) {
  ASSIGN_OR_RETURN(auto insert, Inserter::prepare(database, "channels", 9));
  std::map<uint64_t, std::pair<ChannelRecord, Counts>> channels;
  for (const auto& record : trace.channels()) channels[record.channel].first = record;
  for (const auto& [id, counts] : counted) channels[id].second = counts;
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

Result<void> fill(Database& database, const Trace& trace) {
  ASSIGN_OR_RETURN(const Departures departures, departures_in(trace));
  ASSIGN_OR_RETURN(Tally tally, Tally::begin(database, departures));
  TRY(fill_settings(database, trace));
  TRY(fill_units(database, trace, departures, tally));
  TRY(fill_channels(database, trace, tally.channels()));
  return fill_lists(database, trace);
}

// What the catalog of a trace is made from: the trace and the schema.
uint64_t stamp_of(const Trace& trace) {
  const std::string schema = catalog_schema();
  return XXH3_64bits_withSeed(schema.data(), schema.size(), trace.fingerprint());
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

// What SQLite opens with a database (sqlite.org/tempfiles.html). redrive never makes these files beside a catalog, and
// a stranger's make SQLite change the catalog, or even delete a file elsewhere that a journal names.
std::vector<std::string> companions(Storage& storage, const std::string& catalog) {
  std::vector<std::string> found;
  for (const char* suffix : {"-journal", "-wal", "-shm"}) {
    if (storage.exists(catalog + suffix)) found.push_back(catalog + suffix);
  }
  return found;
}

enum class CatalogState { absent, changed, stale, current };

Result<CatalogState> catalog_state(const Trace& trace) {
  Storage& storage = trace.storage();
  const std::string path = TraceFiles{trace.directory()}.catalog();
  if (!storage.exists(path)) return CatalogState::absent;
  if (!companions(storage, path).empty()) return CatalogState::changed;
  const auto sums = read_sums(storage, path);
  const Result<void> as_made = sums ? verify_sums(storage, path, *sums) : sums.error();
  if (!as_made) {
    const Error& error = as_made.error();
    return error.status == Status::damaged ? Result<CatalogState>(CatalogState::changed) : error;
  }
  return sums->stamp == stamp_of(trace) ? CatalogState::current : CatalogState::stale;
}

// Makes the catalog and its sums, which are synced, under other names.
Result<void> write_catalog(const Trace& trace, const std::string& path) {
  Storage& storage = trace.storage();
  ASSIGN_OR_RETURN(const auto file, storage.create(path));  // private, whoever may read what SQLite makes
  ASSIGN_OR_RETURN(auto database, Database::open(storage.has_real_paths() ? path : ":memory:"));
  TRY(database.run("BEGIN"));
  TRY(database.run(catalog_schema()));
  TRY(fill(database, trace));
  TRY(database.run("COMMIT"));
  if (!storage.has_real_paths()) TRY(file->append(database.contents()));
  ASSIGN_OR_RETURN(const BlockSums sums, sum_file(storage, path, stamp_of(trace)));
  TRY(write_sums(storage, path, sums));
  return storage.sync({path, sums_path(path)});
}

}  // namespace

Result<void> build_catalog(const Trace& trace) {
  Storage& storage = trace.storage();
  const std::string place = TraceFiles{trace.directory()}.catalog(), path = temporary(place);
  const Fd turn = trace.state().lock_derived();
  if (const auto state = catalog_state(trace); state && *state == CatalogState::current) return {};
  for (const auto& file : companions(storage, place)) TRY(storage.remove(file));
  if (auto written = write_catalog(trace, path); !written) {
    for (const auto& left : {path, sums_path(path)}) {
      if (storage.exists(left)) (void)static_cast<bool>(storage.remove(left));
    }
    return written;
  }
  // Sums without a catalog mean nothing, so a kill between these steps does not leave anything that looks like damage.
  if (storage.exists(place)) TRY(storage.remove(place));
  TRY(storage.rename(sums_path(path), sums_path(place)));
  return storage.rename(path, place);
}

Result<bool> is_catalog_changed(const Trace& trace) {
  ASSIGN_OR_RETURN(const CatalogState state, catalog_state(trace));
  return state == CatalogState::changed;
}

Result<std::string> catalog_path(const Trace& trace) {
  ASSIGN_OR_RETURN(const CatalogState state, catalog_state(trace));
  if (state != CatalogState::current) TRY(build_catalog(trace));
  return TraceFiles{trace.directory()}.catalog();
}

}  // namespace redrive
