// catalog.sqlite: what people query, derived from the journal and the segments.
#include <algorithm>

#include "base/check.h"
#include "logstore/block_sums.h"
#include "logstore/database.h"
#include "logstore/trace.h"
#include "logstore/trace_files.h"

namespace redrive {
namespace {

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
    messages++;
    message_bytes += receive.length();
    if (!receive.logged) return;
    logged_messages++;
    logged_bytes += receive.length();
  }
};

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

class CatalogBuilder {
 public:
  CatalogBuilder(const Trace& trace, Database& database) : trace_(trace), database_(database) {}

  Result<void> build() {
    TRY(database_.run("BEGIN"));
    TRY(database_.run(catalog_schema()));
    TRY(fill_settings());
    TRY(collect_sends());
    TRY(fill_units());
    TRY(fill_channels());
    TRY(fill_lists());
    return database_.run("COMMIT");
  }

 private:
  Result<void> fill_settings() {
    ASSIGN_OR_RETURN(auto insert, Inserter::prepare(database_, "settings", 2));
    const Settings& s = trace_.settings();
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
    TRY(insert("finished", trace_.finished()));
    TRY(insert("exit_status", trace_.end().exit_status));
    TRY(insert("end_reason", trace_.end().reason));
    TRY(insert("wall_s", trace_.end().wall_s));
    return insert("skipped_checkpoints", trace_.end().skipped_checkpoints);
  }

  Result<void> each_event(UnitId unit, const std::function<bool(EventIndex, const Event&)>& visit) {
    return trace_.for_each_event(unit, 0, trace_.event_count(unit), visit);
  }

  Result<void> collect_sends() {
    for (const auto& unit : trace_.units()) {
      auto& times = sends_[unit.unit];
      TRY(each_event(unit.unit, [&](EventIndex index, const Event& event) {
        if (!event.send) return true;
        times.push_back({index, event.send->at_ns});
        auto& channel = channels_[event.send->channel];
        channel.sends++;
        channel.sent_bytes += event.send->length;
        return true;
      }));
    }
    return {};
  }

  Result<void> fill_units() {
    ASSIGN_OR_RETURN(auto units, Inserter::prepare(database_, "units", 9));
    ASSIGN_OR_RETURN(auto intervals, Inserter::prepare(database_, "intervals", 16));
    ASSIGN_OR_RETURN(auto messages, Inserter::prepare(database_, "messages", 14));
    for (const auto& unit : trace_.units()) {
      const auto& list = trace_.intervals(unit.unit);
      std::vector<Counts> counts(std::max<size_t>(list.size(), 1));
      TRY(fill_messages(unit.unit, list, counts, messages));
      Counts sum;
      for (const auto& one : counts) sum.events += one.events, sum.repeats += one.repeats;
      std::string joined;
      for (const UnitId other : unit.joined) joined += (joined.empty() ? "" : " ") + std::to_string(other);
      TRY(units(unit.unit, trace_.unit_name(unit.unit), unit.pid, list.empty() ? "" : list.back().command,
                unit.parent.unit, unit.parent.event, joined, sum.events, sum.repeats));
      for (size_t i = 0; i < list.size(); i++) TRY(fill_interval(list[i], counts[i], intervals));
    }
    return {};
  }

  // The messages that a unit received, and the counts of its intervals.
  Result<void> fill_messages(UnitId unit, const std::vector<IntervalRecord>& list, std::vector<Counts>& counts,
                             Inserter& insert) {
    size_t current = 0;
    Result<void> inserted;
    TRY(each_event(unit, [&](EventIndex index, const Event& event) {
      while (current + 1 < list.size() && list[current + 1].first_event <= index) current++;
      Counts& count = counts[current];
      count.events++;
      count.repeats += event.repeat;
      if (!event.receive || event.receive->parts.empty()) {
        for (const auto& write : event.writes) count.input_bytes += write.data.size();
        return true;
      }
      const Receive& receive = *event.receive;
      count.receive(receive);
      channels_[receive.channel].receive(receive);
      for (size_t part = 0; inserted && part < receive.parts.size(); part++) {
        const MessagePart& p = receive.parts[part];
        inserted = insert(unit, index, part, current, p.sender.unit, p.sender.event, p.offset, p.length, p.hash,
                          receive.logged, receive.arrival, receive.channel, receive.at_ns, send_time(sends_, p.sender));
      }
      return static_cast<bool>(inserted);
    }));
    return inserted;
  }

  Result<void> fill_interval(const IntervalRecord& i, const Counts& c, Inserter& insert) {
    const IntervalEnd* end = trace_.interval_end(i.unit, i.interval);
    std::optional<double> cpu_s;
    if (end) cpu_s = static_cast<double>(end->cpu_ns) / 1e9;
    return insert(i.unit, i.interval, name(i.kind), i.has_image, i.pid, i.command, i.first_event, c.events, c.repeats,
                  cpu_s, i.pause_ns, c.messages, c.logged_messages, c.message_bytes, c.logged_bytes, c.input_bytes);
  }

  // Channels that a killed recorder did not come to journal are listed without kind and name.
  Result<void> fill_channels() {
    ASSIGN_OR_RETURN(auto insert, Inserter::prepare(database_, "channels", 9));
    std::map<uint64_t, ChannelRecord> records;
    for (const auto& [id, counts] : channels_) records[id].channel = id;
    for (const auto& channel : trace_.channels()) records[channel.channel] = channel;
    for (const auto& [id, r] : records) {
      const Counts& c = channels_[id];
      TRY(insert(id, r.kind, r.name, c.sends, c.sent_bytes, c.messages, c.logged_messages, c.message_bytes,
                 c.logged_bytes));
    }
    return {};
  }

  Result<void> fill_lists() {
    ASSIGN_OR_RETURN(auto files, Inserter::prepare(database_, "files", 4));
    for (const auto& [id, file] : trace_.files()) TRY(files(id, file.path, file.copy, file.size));
    ASSIGN_OR_RETURN(auto refused, Inserter::prepare(database_, "refused", 4));
    for (const auto& refusal : trace_.refusals())
      TRY(refused(refusal.unit, refusal.what, refusal.answer, refusal.count));
    ASSIGN_OR_RETURN(auto unsure, Inserter::prepare(database_, "unsure", 3));
    for (const auto& one : trace_.unsure()) TRY(unsure(one.unit, one.event, one.reason));
    ASSIGN_OR_RETURN(auto interceptions, Inserter::prepare(database_, "interceptions", 3));
    for (const auto& one : trace_.interceptions()) TRY(interceptions(one.unit, one.served, one.stopped));
    ASSIGN_OR_RETURN(auto sites, Inserter::prepare(database_, "stopping_sites", 5));
    for (const auto& site : trace_.stopping_sites()) {
      TRY(sites(site.file, site.offset, site.instruction, site.stops, site.patchable));
    }
    return {};
  }

  const Trace& trace_;
  Database& database_;
  SendTimes sends_;
  std::map<uint64_t, Counts> channels_;
};

Result<void> fill_database(const Trace& trace, const std::string& path) {
  Storage& storage = trace.storage();
  ASSIGN_OR_RETURN(const auto file, storage.create(path));
  ASSIGN_OR_RETURN(auto database, Database::open(storage.has_real_paths() ? path : ":memory:"));
  TRY(CatalogBuilder(trace, database).build());
  if (storage.has_real_paths()) return {};
  return file->append(database.contents());
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

Result<void> build_catalog(const Trace& trace) {
  Storage& storage = trace.storage();
  const std::string path = TraceFiles{trace.directory()}.catalog();
  const std::string made = temporary(path);
  const auto publish = [&]() -> Result<void> {
    TRY(fill_database(trace, made));
    ASSIGN_OR_RETURN(const BlockSums sums, sum_file(storage, made, trace.fingerprint()));
    TRY(write_sums(storage, made, sums));
    TRY(storage.sync({made, sums_path(made)}));
    // Sums without a catalog mean nothing: a kill between these steps leaves nothing that could be taken for damage.
    if (storage.exists(path)) TRY(storage.remove(path));
    TRY(storage.rename(sums_path(made), sums_path(path)));
    TRY(storage.rename(made, path));
    return storage.sync({trace.directory()});
  };
  auto published = publish();
  if (!published) {
    for (const auto& left : {made, sums_path(made)}) {
      if (storage.exists(left)) (void)static_cast<bool>(storage.remove(left));
    }
  }
  return published;
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
