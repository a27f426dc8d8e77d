// catalog.sqlite: what people query, derived from the journal and the segments.
#include "logstore/catalog.h"

#include <algorithm>

#include "base/check.h"
#include "logstore/block_sums.h"
#include "logstore/trace_files.h"

namespace redrive {

void CatalogCounts::receive(const Receive& receive) {
  messages++;
  message_bytes += receive.length();
  if (!receive.logged) return;
  logged_messages++;
  logged_bytes += receive.length();
}

CatalogTally::Unit& CatalogTally::unit(UnitId id) {
  if (id >= units_.size()) units_.resize(id + 1);
  return units_[id];
}

// A later record of the same interval replaces the earlier one.
void CatalogTally::add(const IntervalRecord& interval) {
  Unit& of = unit(interval.unit);
  if (interval.interval >= of.first_events.size()) of.first_events.resize(interval.interval + 1);
  of.first_events[interval.interval] = interval.first_event;
  of.counts.resize(of.first_events.size());
}

void CatalogTally::add(UnitId id, EventIndex index, const Event& event) {
  Unit& of = unit(id);
  while (of.current + 1 < of.first_events.size() && of.first_events[of.current + 1] <= index) of.current++;
  CatalogCounts& count = of.counts[of.current];
  count.events++;
  count.repeats += event.repeat;
  if (event.send && event.child_unit) {
    births_[event.child_unit] = event.send->at_ns;
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
    messages_.push_back({{id, index},
                         part,
                         static_cast<IntervalIndex>(of.current),
                         receive.logged,
                         receive.arrival,
                         receive.channel,
                         receive.at_ns,
                         receive.parts[part]});
  }
}

void CatalogTally::add_payload(EventRef receiver, uint64_t channel, uint64_t bytes) {
  Unit& of = unit(receiver.unit);
  const auto after = std::upper_bound(of.first_events.begin(), of.first_events.end(), receiver.event);
  const auto interval = std::max<ptrdiff_t>(after - of.first_events.begin(), 1) - 1;
  for (CatalogCounts* counts : {&of.counts[static_cast<size_t>(interval)], &channels_[channel]}) {
    counts->logged_messages++;
    counts->logged_bytes += bytes;
  }
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

Result<void> fill_units(Database& database, const Trace& trace, CatalogTally& tally) {
  ASSIGN_OR_RETURN(auto units, Inserter::prepare(database, "units", 10));
  ASSIGN_OR_RETURN(auto intervals, Inserter::prepare(database, "intervals", 16));
  for (const auto& unit : trace.units()) {
    const auto& list = trace.intervals(unit.unit);
    const auto& counts = tally.intervals(unit.unit);
    CatalogCounts sum;
    for (const auto& one : counts) sum.events += one.events, sum.repeats += one.repeats;
    std::string joined;
    for (const UnitId other : unit.joined) joined += (joined.empty() ? "" : " ") + std::to_string(other);
    const auto birth = tally.births().find(unit.unit);
    std::optional<uint64_t> parent_at_ns;
    if (birth != tally.births().end()) parent_at_ns = birth->second;
    TRY(units(unit.unit, trace.unit_name(unit.unit), unit.pid, list.empty() ? "" : list.back().command,
              unit.parent.unit, unit.parent.event, parent_at_ns, joined, sum.events, sum.repeats));
    for (const IntervalRecord& i : list) {
      const CatalogCounts& c = counts[i.interval];
      const IntervalEnd* end = trace.interval_end(i.unit, i.interval);
      std::optional<double> cpu_s;
      if (end) cpu_s = static_cast<double>(end->cpu_ns) / 1e9;
      TRY(intervals(i.unit, i.interval, name(i.kind), i.has_image, i.pid, i.command, i.first_event, c.events, c.repeats,
                    cpu_s, i.pause_ns, c.messages, c.logged_messages, c.message_bytes, c.logged_bytes, c.input_bytes));
    }
  }
  return {};
}

// Channels that a killed recorder did not come to journal are listed without kind and name.
Result<void> fill_channels(Database& database, const Trace& trace, const CatalogTally& tally) {
  ASSIGN_OR_RETURN(auto insert, Inserter::prepare(database, "channels", 9));
  std::map<uint64_t, ChannelRecord> records;
  for (const auto& [id, counts] : tally.channels()) records[id].channel = id;
  for (const auto& channel : trace.channels()) records[channel.channel] = channel;
  for (const auto& [id, r] : records) {
    const auto counted = tally.channels().find(id);
    const CatalogCounts c = counted == tally.channels().end() ? CatalogCounts{} : counted->second;
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

// When each send of a unit took place, in order of events.
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
  ASSIGN_OR_RETURN(made->insert_message_, Inserter::prepare(made->database_, "messages", 14));
  return made;
}

CatalogWriter::~CatalogWriter() {
  for (const auto& left : {path_, sums_path(path_)}) {
    if (storage_.exists(left)) (void)static_cast<bool>(storage_.remove(left));
  }
}

Result<void> CatalogWriter::add(std::span<const CatalogMessage> messages) {
  for (const auto& m : messages) {
    TRY((*insert_message_)(m.receiver.unit, m.receiver.event, m.part, m.interval, m.sent.sender.unit,
                           m.sent.sender.event, m.sent.offset, m.sent.length, m.sent.hash, m.logged, m.arrival,
                           m.channel, m.at_ns, m.sent.sent_at_ns));
  }
  return {};
}

Result<void> CatalogWriter::note_payload(EventRef receiver) {
  if (!insert_payload_) {
    TRY(database_.run(
        "CREATE TEMP TABLE payloads(unit INTEGER, event INTEGER, PRIMARY KEY(unit, event)) WITHOUT ROWID"));
    ASSIGN_OR_RETURN(insert_payload_, Inserter::prepare(database_, "payloads", 2));
  }
  return (*insert_payload_)(receiver.unit, receiver.event);
}

Result<void> CatalogWriter::publish(const Trace& trace, CatalogTally& tally) {
  if (insert_payload_) {
    TRY(
        database_.run("UPDATE messages SET logged = 1 WHERE EXISTS (SELECT 1 FROM payloads "
                      "WHERE payloads.unit = messages.unit AND payloads.event = messages.event)"));
  }
  TRY(fill_settings(database_, trace));
  TRY(fill_units(database_, trace, tally));
  TRY(fill_channels(database_, trace, tally));
  TRY(fill_lists(database_, trace));
  TRY(database_.run("COMMIT"));
  if (!storage_.has_real_paths()) TRY(file_->append(database_.contents()));
  ASSIGN_OR_RETURN(const BlockSums sums, sum_file(storage_, path_, trace.fingerprint()));
  TRY(write_sums(storage_, path_, sums));
  TRY(storage_.sync({path_, sums_path(path_)}));
  // Sums without a catalog mean nothing: a kill between these steps leaves nothing that could be taken for damage.
  const std::string place = TraceFiles{trace.directory()}.catalog();
  if (storage_.exists(place)) TRY(storage_.remove(place));
  TRY(storage_.rename(sums_path(path_), sums_path(place)));
  TRY(storage_.rename(path_, place));
  return storage_.sync({trace.directory()});
}

Result<void> build_catalog(const Trace& trace) {
  const std::string path = temporary(TraceFiles{trace.directory()}.catalog());
  ASSIGN_OR_RETURN(const auto writer, CatalogWriter::create(trace.storage(), path));
  ASSIGN_OR_RETURN(const SendTimes sends, send_times(trace));
  CatalogTally tally;
  for (const auto& unit : trace.units()) {
    for (const auto& interval : trace.intervals(unit.unit)) tally.add(interval);
    Result<void> added;
    TRY(trace.for_each_event(unit.unit, 0, trace.event_count(unit.unit), [&](EventIndex index, const Event& event) {
      tally.add(unit.unit, index, event);
      for (auto& message : tally.messages()) message.sent.sent_at_ns = send_time(sends, message.sent.sender);
      added = writer->add(tally.messages());
      tally.messages().clear();
      return static_cast<bool>(added);
    }));
    TRY(added);
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
