// A small trace with one of everything, always the same, for tests, the golden trace and the fuzzer.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>

#include "logstore/record_file.h"
#include "logstore/trace.h"

namespace redrive::sample {

// Random values as in programs: mostly small, some addresses, rarely arbitrary.
class Values {
 public:
  // `format`: values are such as traces of that format have.
  explicit Values(uint64_t seed, uint32_t format = kFormatVersion) : format(format), engine_(seed) {}
  const uint32_t format;
  uint64_t next_ns = 0;  // when the next event is; 0: it has no time

  uint64_t below(uint64_t limit) { return engine_() % limit; }
  bool once_in(uint64_t n) { return below(n) == 0; }
  uint64_t any() {
    switch (below(4)) {
      case 0:
        return 0;
      case 1:
        return below(200);
      case 2:
        return 0x7fff'0000'0000 + below(1 << 20) * 8;
      default:
        return engine_() >> below(64);
    }
  }
  Bytes bytes(size_t size) {
    Bytes out(size);
    for (auto& byte : out) byte = static_cast<uint8_t>(engine_());
    return out;
  }

 private:
  std::mt19937_64 engine_;
};

inline Event event(Values& v) {
  Event e;
  e.kind = static_cast<EventKind>(v.below(5));
  e.thread = static_cast<ThreadSerial>(v.below(3));
  if (v.once_in(8)) e.repeat = v.below(1000);
  e.number = static_cast<int32_t>(v.below(470));
  if (v.once_in(16)) e.number = static_cast<int32_t>(v.any());
  for (auto& arg : e.args) arg = v.any();
  e.ip = v.any();
  const auto hash = static_cast<uint32_t>(v.any());
  e.regs_hash = v.format >= 10 && v.once_in(2) ? RegistersHash::of_call(hash) : RegistersHash::whole(hash);
  e.in_hash = v.any();
  e.result = static_cast<int64_t>(v.any()) * (v.once_in(4) ? -1 : 1);
  for (uint64_t i = v.below(3); i > 0; i--) {
    using Kind = MemoryWrite::Kind;
    MemoryWrite write{v.any(), v.below(100), v.once_in(4) ? Kind::message : Kind::data, {}};
    if (v.format >= 7 && v.once_in(8)) write.kind = v.once_in(2) ? Kind::zeros : Kind::beyond_end;
    if (write.kind == Kind::data) write.data = v.bytes(write.length);
    e.writes.push_back(std::move(write));
  }
  if (v.once_in(4)) {
    e.receive = Receive{v.below(3) + 1, v.any(), v.any(), v.once_in(2), {}};
    for (uint64_t i = v.below(3); i > 0; i--) {
      const EventRef sender{static_cast<UnitId>(v.below(3) + 1), v.below(100)};
      e.receive->parts.push_back({sender, v.any(), v.below(1 << 20), v.any()});
    }
  }
  if (v.once_in(4)) e.send = Send{v.below(3) + 1, v.below(1 << 20), v.any()};
  if (v.once_in(16)) e.map = MapSource{1, v.any(), v.any(), 4096 * v.below(16)};
  if (v.once_in(16)) e.registers = RegisterFile{v.bytes(27 * 8), v.bytes(v.below(2) * 100)};
  if (v.once_in(16)) e.child_unit = static_cast<UnitId>(v.below(1 << 31));
  if (v.once_in(16)) e.child_thread = static_cast<ThreadSerial>(v.below(1 << 31));
  e.fatal = v.once_in(32);
  if (v.format >= 5 && v.once_in(8)) {
    for (uint64_t i = v.below(4); i > 0; i--) {
      ObjectChange change{static_cast<ObjectChange::Kind>(v.below(4)), v.any(), v.below(uint64_t{1} << 50), 0, 0, {}};
      if (change.kind != ObjectChange::Kind::size) change.length = v.below(100);
      if (change.kind == ObjectChange::Kind::file) change.file = 1;
      if (change.kind == ObjectChange::Kind::data) change.data = v.bytes(change.length);
      e.changes.push_back(std::move(change));
    }
    for (uint64_t i = v.below(3); i > 0; i--)
      e.child_writes.push_back({v.any(), 5, MemoryWrite::Kind::data, v.bytes(5)});
  }
  if (v.format >= 6 && v.once_in(8)) e.cycle = static_cast<uint32_t>(1 + v.below(kLongestCycle));
  if (v.next_ns) {
    constexpr uint64_t kStep_ns = 2'000'000;  // so far apart that each has a stamp
    e.time = {v.next_ns, v.next_ns, v.next_ns};
    v.next_ns += kStep_ns;
  }
  return e;
}

inline Settings settings() {
  Settings s;
  s.policy = "always";
  s.critical_path_s = 1.5;
  s.checkpoint_period_s = 2;
  s.bound_s = 10;
  s.restore_cost_s = 0.05;
  s.command = {"jacobi", "--size", "100"};
  s.working_directory = "/home/somebody";
  s.host = "Linux 6.18 x86_64, a processor";
  s.started_unix_ns = 1'795'000'000'000'000'000;
  return s;
}

constexpr UnitId kUnits = 3;
constexpr UnitId kShortUnit = 4;  // it ended before anything of it was written; since format 4
constexpr EventIndex kShortEvents = 5;
constexpr EventIndex kEventsPerInterval = 40;
constexpr IntervalIndex kIntervals = 2;
constexpr size_t kPages = 100;  // of each image, a tenth of them zero

constexpr uint64_t kStart_ns = 3'600'000'000'000;  // on the monotonic clock

inline Values event_values(UnitId unit, uint32_t format = kFormatVersion) {
  Values values(1000 + unit, format);
  if (format >= 11) values.next_ns = kStart_ns;
  return values;
}

// Page `i` of the image of a unit's interval. A quarter of the pages is the same in all images; every tenth is zero.
inline Bytes page(UnitId unit, IntervalIndex interval, size_t i) {
  if (i % 10 == 9) return Bytes(4096);
  Values v(i % 4 == 0 ? i : i + 1000 * unit + 100'000 * (interval + 1));
  Bytes out = v.bytes(64);
  out.resize(4096, static_cast<uint8_t>(i));
  out[4095] = 1;
  return out;
}
inline uint64_t page_address(size_t i) { return 0x40'0000 + i * 4096 + (i > 50 ? 0x7000'0000'0000 : 0); }

inline Result<TraceWriter::ImageStats> write_image(TraceWriter& writer, UnitId unit, IntervalIndex interval) {
  return writer.write_image(unit, interval, [&](const AddPages& add) -> Result<Bytes> {
    for (size_t i = 0; i < kPages; i++) TRY(add(1, page_address(i), page(unit, interval, i)));
    return Values(77).bytes(300);
  });
}

inline Result<TraceWriter::ImageStats> publish(TraceWriter& writer, UnitId unit, IntervalIndex interval) {
  ASSIGN_OR_RETURN(const auto stats, write_image(writer, unit, interval));
  TRY(writer.publish_images());
  return stats;
}

// A file of two blocks, to be copied into the trace; removed at exit.
class SourceFile {
 public:
  SourceFile() {
    const int fd = ::mkstemp(path_);
    if (fd < 0) std::abort();
    ::close(fd);
    const Bytes data = Values(5).bytes(70'000);
    std::ofstream file(path_, std::ios::binary);
    file.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
  }
  ~SourceFile() { std::remove(path_); }
  SourceFile(const SourceFile&) = delete;
  SourceFile& operator=(const SourceFile&) = delete;
  std::string path() const { return path_; }

 private:
  char path_[32] = "/tmp/redrive-sample-XXXXXX";
};

inline std::string source_file() {
  static const SourceFile file;
  return file.path();
}

// Fills a trace; the writer keeps errors. `flushed` is called after each successful flush, with the number of events of
// a unit.
inline void fill(TraceWriter& writer, const std::function<void(EventIndex)>& flushed = {}) {
  std::vector<Values> values;
  for (UnitId unit = 0; unit <= kUnits; unit++) values.push_back(event_values(unit));
  writer.add(WallClockRecord{kStart_ns, kStart_ns, settings().started_unix_ns - static_cast<int64_t>(kStart_ns), 500});
  writer.add(ChannelRecord{1, "pipe", "pipe:[1]"});
  writer.add(ChannelRecord{2, "tcp", "127.0.0.1:80 - 127.0.0.1:4000"});
  (void)static_cast<bool>(writer.add_file(source_file(), "/lib/sample.so", true));
  for (UnitId unit = 1; unit <= kUnits; unit++) {
    writer.add(UnitRecord{unit, static_cast<int32_t>(100 + unit), unit > 1 ? EventRef{1, 3} : EventRef{}, {}});
  }
  writer.add(UnitRecord{2, 102, EventRef{1, 3}, {3}});
  for (IntervalIndex interval = 0; interval < kIntervals; interval++) {
    const EventIndex first = interval * kEventsPerInterval;
    for (UnitId unit = 1; unit <= kUnits; unit++) {
      const auto kind = interval > 0 ? CheckpointKind::image : unit > 1 ? CheckpointKind::fork : CheckpointKind::exec;
      const std::string command = unit == 1 ? "server -p 80" : "jacobi --size 100";
      writer.add(IntervalRecord{unit, interval, kind, first, interval > 0, static_cast<int32_t>(100 + unit), command,
                                250'000, kStart_ns + interval, unit + interval});
      for (EventIndex i = 0; i < kEventsPerInterval; i++) writer.append(unit, event(values[unit]));
    }
    if (writer.flush() && flushed) flushed(first + kEventsPerInterval);
    for (UnitId unit = 1; unit <= kUnits; unit++) {
      if (interval > 0) (void)static_cast<bool>(publish(writer, unit, interval));
      writer.add(IntervalEnd{unit,
                             interval,
                             1'000'000'000 * unit,
                             first + kEventsPerInterval,
                             {},
                             0,
                             kStart_ns + 1'000'000'000 * (interval + 1)});
    }
  }
  writer.add(UnitRecord{kShortUnit, 104, EventRef{1, 4}, {}});
  writer.add(IntervalRecord{kShortUnit, 0, CheckpointKind::fork, 0, false, 104, "true", 0});
  Values short_values = event_values(kShortUnit);
  for (EventIndex i = 0; i < kShortEvents; i++) writer.append(kShortUnit, event(short_values));
  writer.add(IntervalEnd{kShortUnit, 0, 1000, kShortEvents, Bytes(30, 7)});
  writer.end_unit(kShortUnit);
  writer.add(Refusal{2, "io_uring_setup", "ENOSYS", 3});
  writer.add(Unsure{3, 17, "shared memory with an unrecorded process"});
  writer.add(Interception{2, 10, 5});
  writer.add(StoppingSite{"/lib/x", 0x1234, "syscall", 5, false});
}

inline RecordingEnd recording_end() { return RecordingEnd{7, "exited", 12.5, 1, {3, 2, "seccomp: unknown"}}; }

}  // namespace redrive::sample
