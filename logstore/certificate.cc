#include "logstore/certificate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "logstore/fields.h"
#include "logstore/record_file.h"
#include "logstore/trace_files.h"
#include "logstore/trace_state.h"

namespace redrive {
namespace {

// Each is const when it is written.
template <typename Direction, typename Replay>
void replay_fields(Direction& io, Replay& r) {
  io(r.unit, r.interval, r.intervals, r.work_s, r.restore_s, r.memory_bytes, r.predicted_s);
}

template <typename Direction, typename C>
void fields(Direction& io, C& c, uint64_t& fingerprint) {
  io.fixed(fingerprint);
  io(c.bound_s, c.jobs, c.pace.times, c.pace.least, c.pace.most, c.pace.measured, c.intervals);
  replay_fields(io, c.slowest);
  io.list(c.over, [&](auto& replay) { replay_fields(io, replay); });
  io.added(c.pace.start_s);
  io.added(c.slowest.clock_error_s);
  for (auto& replay : c.over) io.added(replay.clock_error_s);
  io.added(c.pace.begin_s);
  io.added(c.pace.message_s);
  io.added(c.slowest.messages);
  for (auto& replay : c.over) io.added(replay.messages);
}

bool is_time(double seconds) { return std::isfinite(seconds) && seconds >= 0; }

bool is_plausible(const Pace& pace) {
  return is_time(pace.times) && is_time(pace.least) && is_time(pace.most) && is_time(pace.start_s) &&
         is_time(pace.begin_s) && is_time(pace.message_s);
}

bool is_plausible(const PredictedReplay& replay) {
  return is_time(replay.work_s) && is_time(replay.restore_s) && is_time(replay.predicted_s) &&
         is_time(replay.clock_error_s);
}

// Replays of intervals that the trace has.
bool belongs_to(const PredictedReplay& replay, const Trace& trace) {
  const auto& units = trace.units();
  const bool known =
      std::any_of(units.begin(), units.end(), [&](const UnitRecord& unit) { return unit.unit == replay.unit; });
  return known && replay.interval < trace.intervals(replay.unit).size();
}

}  // namespace

Result<void> keep_certificate(const Trace& trace, const Certificate& certificate) {
  Storage& storage = trace.storage();
  const std::string path = TraceFiles{trace.directory()}.certificate();
  Writing out;
  uint64_t fingerprint = trace.fingerprint();
  fields(out, certificate, fingerprint);
  const Fd turn = trace.state().lock_derived();
  if (storage.exists(temporary(path))) TRY(storage.remove(temporary(path)));
  RecordWriter writer(storage, temporary(path), FileKind::certificate);
  writer.add(RecordType::certificate, out.take());
  TRY(writer.write());
  TRY(storage.sync({temporary(path)}));
  return storage.rename(temporary(path), path);
}

Result<std::optional<Certificate>> kept_certificate(const Trace& trace) {
  Storage& storage = trace.storage();
  const std::string path = TraceFiles{trace.directory()}.certificate();
  if (!storage.exists(path)) return std::optional<Certificate>();
  ASSIGN_OR_RETURN(const auto file, RecordFile::open(storage, path, FileKind::certificate, 0, 0, Tail::whole));
  if (file->records().size() != 1 || file->records()[0].type != RecordType::certificate) {
    return damage(path, kPreambleSize, "not one certificate");
  }
  ASSIGN_OR_RETURN(const Bytes bytes, file->payload(file->records()[0]));
  Reading in(bytes);
  uint64_t fingerprint = 0;
  Certificate certificate;
  fields(in, certificate, fingerprint);
  if (in.done() && fingerprint != trace.fingerprint()) return std::optional<Certificate>();
  const bool good = in.done() && certificate.jobs > 0 && is_time(certificate.bound_s) &&
                    is_plausible(certificate.pace) && is_plausible(certificate.slowest) &&
                    (certificate.slowest.unit == 0 || belongs_to(certificate.slowest, trace)) &&
                    std::all_of(certificate.over.begin(), certificate.over.end(),
                                [&](const auto& replay) { return is_plausible(replay) && belongs_to(replay, trace); });
  if (!good) return damage(path, kPreambleSize, "a certificate that does not fit the trace");
  return std::optional(std::move(certificate));
}

}  // namespace redrive
