// trace_fuzz [SEED [ITERATIONS]]: damages small traces in every way and reads all of them. Nothing may crash, hang or
// allocate without limit; what was not damaged reads as before, and a flipped bit in a finished trace is reported. A
// failure prints its seed.
#include <unistd.h>

#include <map>

#include "logstore/certificate.h"
#include "logstore/memory_storage.h"
#include "logstore/record_file.h"
#include "logstore/trace_additions.h"
#include "tests/fuzz/read_trace.h"
#include "tests/fuzz/seeds.h"
#include "tests/unit/logstore_sample.h"

using namespace redrive;
using fuzz::require;

namespace {

constexpr unsigned kSecondsPerTrace = 20;  // much longer than any correct run

using Files = std::map<std::string, Bytes>;

Files files_of(MemoryStorage& storage) {
  Files out;
  for (const auto& path : storage.all_files()) out[path] = storage.bytes(path);
  return out;
}

enum class State { killed, finished, prepared };

// Does what `prepare` does: adds the payloads of all messages, another image, other settings.
void prepare(MemoryStorage& storage) {
  const auto trace = Trace::open("/t", storage);
  require(static_cast<bool>(trace), "cannot open a trace");
  const auto additions = TraceAdditions::begin(**trace);
  require(static_cast<bool>(additions), "cannot add to a trace");
  const auto add_payload = [&](EventRef receiver, const Event& event) {
    uint64_t length = 0;
    for (const auto& write : event.writes) length += write.from_message() ? write.length : 0;
    return !event.receive || event.receive->logged || (*additions)->add_payload(receiver, Bytes(length, 7));
  };
  for (const auto& unit : (*trace)->units()) {
    const auto read = (*trace)->for_each_event(unit.unit, 0, UINT64_MAX, [&](EventIndex index, const Event& event) {
      require(add_payload({unit.unit, index}, event), "cannot add a payload");
      return true;
    });
    require(static_cast<bool>(read), "cannot read a trace");
  }
  const auto image = [](const AddPages& add) -> Result<Bytes> {
    TRY(add(1, sample::page_address(1), sample::page(9, 9, 1)));
    return Bytes(50);
  };
  require(static_cast<bool>((*additions)->add_image(1, 0, image)), "cannot add an image");
  require(static_cast<bool>((*additions)->finish(sample::settings())), "cannot end adding");
}

// As at the end of a recording whose bound is not kept, and after `catalog`.
void derive(MemoryStorage& storage) {
  const auto trace = Trace::open("/t", storage);
  require(static_cast<bool>(trace), "cannot open a trace");
  Certificate certificate;
  certificate.bound_s = (*trace)->settings().bound_s;
  certificate.intervals = 3;
  for (const auto& unit : (*trace)->units()) certificate.over.push_back({unit.unit, 0, 2, 1.5, 0.25, 1 << 20, 2});
  certificate.slowest = certificate.over.front();
  require(static_cast<bool>(keep_certificate(**trace, certificate)), "cannot keep a certificate");
  require(static_cast<bool>(build_catalog(**trace)), "cannot make a catalog");
}

Files make_trace(State state) {
  const bool finished = state != State::killed;
  MemoryStorage storage;
  auto writer = TraceWriter::create("/t", sample::settings(), storage);
  require(static_cast<bool>(writer), "cannot make a trace");
  sample::fill(*writer.value());
  if (finished) require(static_cast<bool>(writer.value()->finish(sample::recording_end())), "cannot finish a trace");
  if (!finished) require(static_cast<bool>(writer.value()->flush()), "cannot flush a trace");
  if (state == State::prepared) prepare(storage);
  if (finished) derive(storage);
  return files_of(storage);
}

void put_back(const Files& files, MemoryStorage& storage) {
  for (const char* directory : {"/t", "/t/events", "/t/images", "/t/files", "/t/payloads"}) {
    (void)static_cast<bool>(storage.make_directory(directory));
  }
  for (const auto& [path, data] : files) {
    auto file = storage.create(path);
    require(file && file.value()->append(data), "cannot fill the storage");
  }
}

// True if something was reported.
bool read_all(MemoryStorage& storage) {
  const auto opened = Trace::open("/t", storage);
  if (!opened) return true;
  const auto catalog_changed = is_catalog_changed(**opened);  // a query makes it again
  const bool damaged = fuzz::read_all(**opened, true);
  return damaged || !catalog_changed || *catalog_changed;
}

void damage_bytes(Bytes& data, sample::Values& v) {
  const size_t at = data.empty() ? 0 : v.below(data.size());
  const auto place = data.begin() + static_cast<ptrdiff_t>(at);
  switch (v.below(6)) {
    case 0:
      data.resize(at);
      break;
    case 1: {
      const Bytes extra = v.bytes(v.below(64));
      data.insert(place, extra.begin(), extra.end());
      break;
    }
    case 2:
      data.erase(place, place + static_cast<ptrdiff_t>(v.below(data.size() - at + 1)));
      break;
    case 3:
      for (size_t i = at; i < data.size() && i < at + 4096; i++) data[i] = 0;
      break;
    case 4: {
      const Bytes again(data.begin() + static_cast<ptrdiff_t>(at), data.end());
      data.insert(data.end(), again.begin(), again.end());
      break;
    }
    default:
      for (uint64_t n = v.below(4) + 1; n > 0 && !data.empty(); n--)
        data[v.below(data.size())] = static_cast<uint8_t>(v.any());
  }
}

bool is_framed(const Bytes& data) { return data.size() > kPreambleSize && std::memcmp(data.data(), "redrive", 7) == 0; }

// Damages the contents of a record and corrects its checksums, so that the decoders see the damage.
void damage_payloads(const std::string& path, Files& files, sample::Values& v) {
  MemoryStorage storage;
  put_back(files, storage);
  const auto kind = static_cast<FileKind>(files[path][7]);
  uint32_t id = 0, sub_id = 0;
  std::memcpy(&id, files[path].data() + 12, sizeof id);
  std::memcpy(&sub_id, files[path].data() + 16, sizeof sub_id);
  auto file = RecordFile::open(storage, path, kind, id, sub_id, Tail::torn);
  if (!file || (*file)->records().empty()) return;
  const size_t chosen = v.below((*file)->records().size());
  RecordWriter writer(storage, "/out", kind, id, sub_id);
  Compressor compressor(1);
  for (size_t i = 0; i < (*file)->records().size(); i++) {
    const RecordHeader& record = (*file)->records()[i];
    auto payload = (*file)->payload(record);
    require(static_cast<bool>(payload), "a good record cannot be read");
    uint32_t items = record.items;
    if (i == chosen && v.once_in(8)) items = static_cast<uint32_t>(v.any()) | 1;
    if (i == chosen) damage_bytes(*payload, v);
    writer.add(record.type, *payload, items, v.once_in(2) ? &compressor : nullptr);
  }
  require(static_cast<bool>(writer.write()), "cannot write");
  files[path] = storage.bytes("/out");
}

const std::string& any_path(const Files& files, sample::Values& v) {
  return std::next(files.begin(), static_cast<ptrdiff_t>(v.below(files.size())))->first;
}

void one_trace(const Files& good, bool finished, uint64_t seed) {
  sample::Values v(seed);
  Files files = good;
  const std::string path = any_path(good, v);
  const bool flip = v.once_in(3) && !files[path].empty();
  if (flip) {
    Bytes& data = files[path];
    data[v.below(data.size())] ^= static_cast<uint8_t>(1 << v.below(8));
  } else if (v.once_in(2) && is_framed(files[path])) {
    damage_payloads(path, files, v);
  } else if (v.once_in(10)) {
    files.erase(path);
  } else {
    for (uint64_t n = v.below(3) + 1; n > 0; n--) damage_bytes(files[any_path(good, v)], v);
  }
  MemoryStorage storage;
  put_back(files, storage);
  const bool reported = read_all(storage);
  if (flip && finished) require(reported, "a flipped bit was not reported");
}

}  // namespace

int main(int argc, char** argv) {
  const Files traces[] = {make_trace(State::killed), make_trace(State::finished), make_trace(State::prepared)};
  for (const Files& good : traces) {
    MemoryStorage storage;
    put_back(good, storage);
    require(!read_all(storage), "an undamaged trace is reported");
  }
  return fuzz::run(argc, argv, 2000, "traces", [&](uint64_t seed) {
    ::alarm(kSecondsPerTrace);
    one_trace(traces[seed % 3], seed % 3 != 0, seed);
  });
}
