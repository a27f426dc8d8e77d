// trace_alter FROM TO payload|swap|result|newer|memory|registers|extended|unstored|skipped [UNIT]: copies a trace with
// one planted fault, validly re-encoded.
//
//   payload  one byte of a logged message (recorded with --policy all) is another
//   swap     two messages of one channel arrive in the other order
//   result   a getppid returns another number
//   newer    the journal says that it was written in a format to come
//   memory, registers, extended
//            the hash of these at the end of the unit's last interval is another
//   unstored the recorder was killed, and had not stored the unit's first checkpoint
//   skipped  the recorder went on to the end, but could not store the unit's first checkpoint
//
// Only that is changed: all checksums, counts and hashes of the records are right again. The fault is planted in the
// middle of the unit (1 if not given) and printed as JSON: {"unit": U, "event": E}, E being the first event that is not
// as recorded. Made for tests/programs/relay.c, where each of these shows in the message that the unit sends next.
#include <fmt/format.h>
#include <sys/syscall.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "logstore/hash.h"
#include "supervisor/tier/end_state.h"
#include "tests/fault/trace_parts.h"

namespace redrive {
namespace {

namespace fs = std::filesystem;

// The middle one of the events that qualify.
template <typename Qualifies>
Result<EventIndex> middle(const std::vector<Event>& events, const char* what, Qualifies qualifies) {
  std::vector<EventIndex> found;
  for (EventIndex i = 0; i < events.size(); i++) {
    if (qualifies(events[i])) found.push_back(i);
  }
  if (found.empty()) return Error{fmt::format("the unit has no {}", what)};
  return found[found.size() / 2];
}

bool is_message(const Event& event) { return event.receive && event.result > 0 && !event.receive->parts.empty(); }

Result<EventIndex> alter_payload(std::vector<Event>& events) {
  const auto logged = [](const Event& event) {
    return is_message(event) && event.receive->logged && !event.writes.empty() && !event.writes.front().data.empty();
  };
  ASSIGN_OR_RETURN(const EventIndex at, middle(events, "logged message", logged));
  Bytes& data = events[at].writes.front().data;
  data[data.size() / 2] ^= 1;
  // The hashes are changed too, as a recorder would have written them: the program must notice the difference, not a
  // checksum.
  Receive& receive = *events[at].receive;
  if (receive.parts.size() == 1 && receive.length() == data.size()) receive.parts.front().hash = hash64(data);
  return at;
}

// Swaps two consecutive messages of one channel: what was received, not the calls that received it.
Result<EventIndex> swap_receives(std::vector<Event>& events) {
  const auto first_of_pair = [&](const Event& event) {
    if (!is_message(event)) return false;
    for (const Event* next = &event + 1; next < events.data() + events.size(); next++) {
      if (is_message(*next) && next->receive->channel == event.receive->channel) {
        return next->result == event.result && next->receive->parts.front().hash != event.receive->parts.front().hash;
      }
    }
    return false;
  };
  ASSIGN_OR_RETURN(const EventIndex at, middle(events, "pair of receives", first_of_pair));
  EventIndex second = at + 1;
  while (!is_message(events[second]) || events[second].receive->channel != events[at].receive->channel) second++;
  std::swap(events[at].receive->parts, events[second].receive->parts);
  std::swap(events[at].receive->logged, events[second].receive->logged);
  if (events[at].writes.size() != events[second].writes.size()) return Error{"the receives are not alike"};
  for (size_t i = 0; i < events[at].writes.size(); i++) {
    std::swap(events[at].writes[i].data, events[second].writes[i].data);
    std::swap(events[at].writes[i].kind, events[second].writes[i].kind);
  }
  return at;
}

Result<EventIndex> alter_result(std::vector<Event>& events) {
  const auto getppid = [](const Event& event) {
    return event.kind == EventKind::syscall && event.number == SYS_getppid && event.repeat == 1;
  };
  ASSIGN_OR_RETURN(const EventIndex at, middle(events, "getppid", getppid));
  events[at].result++;
  return at;
}

Result<EventIndex> plant_at_end(TraceParts& parts, const std::string& kind, UnitId unit) {
  const EventIndex count = parts.events[unit].size();
  bool altered = false;
  for (auto& record : parts.journal) {
    auto* const end = std::get_if<IntervalEnd>(&record);
    auto state = end && end->unit == unit && end->end_event == count ? decode_end_state(end->state) : std::nullopt;
    if (!state) continue;
    ++(kind == "memory" ? state->memory : kind == "registers" ? state->registers : state->extended);
    end->state = encode(*state);
    altered = true;
  }
  return altered ? Result<EventIndex>(count - 1) : Error{"nothing is known of the unit's end"};
}

Result<EventIndex> forget_first_image(TraceParts& parts, UnitId unit, bool killed) {
  const auto is_first = [&](const auto& image) { return image.unit == unit && image.interval == 0; };
  if (std::erase_if(parts.images, is_first) == 0) return Error{"the unit's first checkpoint has no image"};
  std::erase_if(parts.journal, [&](const JournalRecord& record) {
    const auto* const published = std::get_if<ImagePublished>(&record);
    return (published && is_first(*published)) || std::holds_alternative<ImageWritten>(record) ||
           (killed && std::holds_alternative<JournalEnd>(record));
  });
  for (auto& record : parts.journal) {
    if (auto* const end = std::get_if<JournalEnd>(&record)) ++end->end.skipped_checkpoints;
  }
  return EventIndex{0};
}

Result<EventIndex> plant(TraceParts& parts, const std::string& kind, UnitId unit) {
  if (kind == "unstored" || kind == "skipped") return forget_first_image(parts, unit, kind == "unstored");
  if (kind == "memory" || kind == "registers" || kind == "extended") return plant_at_end(parts, kind, unit);
  const std::map<std::string, Result<EventIndex> (*)(std::vector<Event>&)> kinds{
      {"payload", alter_payload}, {"swap", swap_receives}, {"result", alter_result}};
  const auto found = kinds.find(kind);
  if (found == kinds.end()) return Error{fmt::format("there is no fault '{}'", kind), Status::usage};
  return found->second(parts.events[unit]);
}

Result<EventIndex> plant_in_parts(const TraceFiles& files, const std::string& kind, UnitId unit) {
  ASSIGN_OR_RETURN(TraceParts parts, take_apart(disk(), files));
  ASSIGN_OR_RETURN(const EventIndex at, plant(parts, kind, unit));
  Compressor compressor(1);
  ASSIGN_OR_RETURN(const auto journal, write_contents(parts, disk(), files, &compressor));
  TRY(write_journal(journal, disk(), files));
  fs::remove(files.catalog());  // derived; it is made again when needed
  return at;
}

Result<EventIndex> plant_version(const TraceFiles& files) {
  std::fstream journal(files.journal(), std::ios::in | std::ios::out | std::ios::binary);
  uint8_t preamble[kPreambleSize];
  journal.read(reinterpret_cast<char*>(preamble), sizeof preamble);
  const uint32_t version = kFormatVersion + 1;
  std::memcpy(preamble + 8, &version, sizeof version);
  const auto checksum = static_cast<uint32_t>(hash64(std::span<const uint8_t>(preamble).first(20)));
  std::memcpy(preamble + 20, &checksum, sizeof checksum);
  journal.seekp(0);
  journal.write(reinterpret_cast<const char*>(preamble), sizeof preamble);
  if (!journal.flush()) return Error{"cannot write the journal"};
  return EventIndex{0};
}

Result<void> alter(const std::string& from, const std::string& to, const std::string& kind, UnitId unit) {
  if (fs::exists(to)) return Error{fmt::format("{} exists", to)};
  fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const TraceFiles files{to};
  ASSIGN_OR_RETURN(const EventIndex at, kind == "newer" ? plant_version(files) : plant_in_parts(files, kind, unit));
  fmt::print("{{\"unit\": {}, \"event\": {}}}\n", unit, at);
  return {};
}

}  // namespace
}  // namespace redrive

int main(int argc, char** argv) {
  using namespace redrive;
  if (argc < 4 || argc > 5) {
    fmt::print(stderr,
               "usage: trace_alter FROM TO "
               "payload|swap|result|newer|memory|registers|extended|unstored|skipped [UNIT]\n");
    return 2;
  }
  try {
    const auto done = alter(argv[1], argv[2], argv[3], argc > 4 ? static_cast<UnitId>(std::stoul(argv[4])) : 1);
    if (done) return 0;
    fmt::print(stderr, "trace_alter: {}\n", done.error().message);
    return static_cast<int>(done.error().status);
  } catch (const std::exception& failure) {
    fmt::print(stderr, "trace_alter: {}\n", failure.what());
    return 1;
  }
}
