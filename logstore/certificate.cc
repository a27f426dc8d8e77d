#include "logstore/certificate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "logstore/record_file.h"
#include "logstore/trace_files.h"

namespace redrive {
namespace {

void encode(Encoder& out, const PredictedReplay& replay) {
  out.u(replay.unit);
  out.u(replay.interval);
  out.u(replay.intervals);
  out.real(replay.work_s);
  out.real(replay.restore_s);
  out.u(replay.memory_bytes);
  out.real(replay.predicted_s);
}

PredictedReplay decode_replay(Decoder& in) {
  PredictedReplay replay;
  replay.unit = static_cast<UnitId>(in.u());
  replay.interval = static_cast<IntervalIndex>(in.u());
  replay.intervals = in.u();
  replay.work_s = in.real();
  replay.restore_s = in.real();
  replay.memory_bytes = in.u();
  replay.predicted_s = in.real();
  return replay;
}

constexpr size_t kLeastReplay = 4 + 3 * sizeof(double);  // bytes

bool is_time(double seconds) { return std::isfinite(seconds) && seconds >= 0; }

bool is_plausible(const PredictedReplay& replay) {
  return is_time(replay.work_s) && is_time(replay.restore_s) && is_time(replay.predicted_s);
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
  Encoder out;
  out.fixed64(trace.fingerprint());
  out.real(certificate.bound_s);
  out.u(certificate.jobs);
  out.real(certificate.pace);
  out.real(certificate.least_pace);
  out.real(certificate.most_pace);
  out.u(certificate.measured);
  out.u(certificate.intervals);
  encode(out, certificate.slowest);
  out.u(certificate.over.size());
  for (const auto& replay : certificate.over) encode(out, replay);
  if (storage.exists(temporary(path))) TRY(storage.remove(temporary(path)));
  RecordWriter writer(storage, temporary(path), FileKind::certificate);
  writer.add(RecordType::certificate, out.data());
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
  Decoder in(bytes);
  const uint64_t fingerprint = in.fixed64();
  Certificate certificate;
  certificate.bound_s = in.real();
  certificate.jobs = static_cast<uint32_t>(in.u());
  certificate.pace = in.real();
  certificate.least_pace = in.real();
  certificate.most_pace = in.real();
  certificate.measured = static_cast<uint32_t>(in.u());
  certificate.intervals = in.u();
  certificate.slowest = decode_replay(in);
  certificate.over.resize(in.count(kLeastReplay));
  for (auto& replay : certificate.over) replay = decode_replay(in);
  if (in.ok() && in.at_end() && fingerprint != trace.fingerprint()) return std::optional<Certificate>();
  const bool good = in.ok() && in.at_end() && certificate.jobs > 0 && is_time(certificate.bound_s) &&
                    is_time(certificate.pace) && is_time(certificate.least_pace) && is_time(certificate.most_pace) &&
                    is_plausible(certificate.slowest) &&
                    (certificate.slowest.unit == 0 || belongs_to(certificate.slowest, trace)) &&
                    std::all_of(certificate.over.begin(), certificate.over.end(),
                                [&](const auto& replay) { return is_plausible(replay) && belongs_to(replay, trace); });
  if (!good) return damage(path, kPreambleSize, "a certificate that does not fit the trace");
  return std::optional(std::move(certificate));
}

}  // namespace redrive
