// A trace taken apart into the contents of its files, to be changed and put together again with correct checksums,
// sizes and counts, whatever was changed. For finished traces in the present format.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "checkpoint/unit_state.h"
#include "logstore/event_block.h"
#include "logstore/image_file.h"
#include "logstore/journal.h"
#include "logstore/page_store.h"
#include "logstore/payload_file.h"
#include "logstore/trace_files.h"

namespace redrive {

struct TraceParts {
  struct ImageParts {
    UnitId unit = 0;
    IntervalIndex interval = 0;
    std::variant<UnitState, Bytes> header;  // bytes if it is not a state
    std::vector<Image::Page> pages;
  };
  std::vector<JournalRecord> journal;
  std::map<UnitId, std::vector<Event>> events;
  std::vector<ImageParts> images;  // in the order of their records in the journal
  std::vector<Bytes> pages;        // by page id
  std::map<UnitId, std::vector<std::pair<EventIndex, Bytes>>> payloads;
};

namespace parts {

using VisitItems = std::function<Result<void>(const RecordHeader&, Decoder& in)>;

inline Result<void> read_records(Storage& storage, const std::string& path, FileKind kind, UnitId unit,
                                 const VisitItems& visit) {
  ASSIGN_OR_RETURN(const auto file, RecordFile::open(storage, path, kind, unit, 0, Tail::torn));
  if (file->damaged()) return *file->damaged();
  return file->for_each_payload([&](const RecordHeader& header, std::span<const uint8_t> payload) {
    Decoder in(payload);
    return visit(header, in);
  });
}

inline Result<std::vector<Event>> read_events(Storage& storage, const std::string& path, UnitId unit) {
  ASSIGN_OR_RETURN(const auto file, RecordFile::open(storage, path, FileKind::events, unit, 0, Tail::torn));
  if (file->damaged()) return *file->damaged();
  std::vector<Event> events;
  EventBlock block;
  TRY(file->for_each_payload([&](const RecordHeader& header, std::span<const uint8_t> payload) -> Result<void> {
    if (!block.open(header, payload)) return damage(path, header.offset, "not a record of events");
    while (!block.at_end()) {
      if (!block.next(events.emplace_back())) return damage(path, header.offset, "an event cannot be decoded");
    }
    return {};
  }));
  return events;
}

inline Result<void> read_all_events(Storage& storage, const TraceFiles& files, TraceParts& parts) {
  std::vector<Event> of_short_units;
  const std::string together = files.segment(TraceFiles::kShortUnits);
  if (storage.exists(together)) {
    ASSIGN_OR_RETURN(of_short_units, read_events(storage, together, TraceFiles::kShortUnits));
  }
  for (const auto& record : parts.journal) {
    const auto* const place = std::get_if<ShortUnit>(&record);
    if (!place || place->first_item + place->events > of_short_units.size()) continue;
    const auto first = of_short_units.begin() + static_cast<ptrdiff_t>(place->first_item);
    parts.events[place->unit].assign(first, first + static_cast<ptrdiff_t>(place->events));
  }
  ASSIGN_OR_RETURN(const auto names, storage.list(files.events()));
  for (const auto& name : names) {
    const auto unit = TraceFiles::unit_of_segment("events/" + name);
    if (!unit || parts.events.contains(*unit)) continue;
    ASSIGN_OR_RETURN(parts.events[*unit], read_events(storage, files.segment(*unit), *unit));
  }
  return {};
}

inline Result<void> read_images(Storage& storage, const TraceFiles& files, TraceParts& parts) {
  if (!storage.exists(files.images())) return {};
  ASSIGN_OR_RETURN(auto file, RecordFile::open(storage, files.images(), FileKind::image, 0, 0, Tail::torn));
  const RecordParts images(std::move(file));
  for (const auto& record : parts.journal) {
    const auto* const published = std::get_if<ImagePublished>(&record);
    if (!published) continue;
    ASSIGN_OR_RETURN(Image image, read_image(images, published->first_item, published->pages));
    auto& made = parts.images.emplace_back(TraceParts::ImageParts{published->unit, published->interval, {}, {}});
    made.pages = std::move(image.pages);
    Decoder in(image.header);
    UnitState state;
    if (decode(in, state)) {
      made.header = std::move(state);
    } else {
      made.header = std::move(image.header);
    }
  }
  return read_records(storage, files.pages(), FileKind::pages, 0, [&](const RecordHeader& header, Decoder& in) {
    for (uint32_t i = 0; i < header.items; ++i) {
      const auto page = in.take(kPageSize);
      parts.pages.emplace_back(page.begin(), page.end());
    }
    return Result<void>();
  });
}

inline Result<void> read_payloads(Storage& storage, const TraceFiles& files, TraceParts& parts) {
  for (const auto& [unit, events] : parts.events) {
    if (!storage.exists(files.payloads(unit))) continue;
    auto& payloads = parts.payloads[unit];
    TRY(read_records(storage, files.payloads(unit), FileKind::payloads, unit,
                     [&](const RecordHeader& header, Decoder& in) {
                       for (uint32_t i = 0; i < header.items; ++i) {
                         const EventIndex event = in.u();
                         const auto bytes = in.bytes();
                         payloads.emplace_back(event, Bytes(bytes.begin(), bytes.end()));
                       }
                       return Result<void>();
                     }));
  }
  return {};
}

inline Result<FileEnd> write_events(Storage& storage, const TraceFiles& files, UnitId unit,
                                    const std::vector<const std::vector<Event>*>& series, Compressor* packing) {
  constexpr size_t kEventsPerRecord = 500;
  RecordWriter writer(storage, files.segment(unit), FileKind::events, unit);
  EventBlockWriter block;
  for (const auto* events : series) {
    for (size_t first = 0; first < events->size(); first += kEventsPerRecord) {
      const size_t count = std::min(kEventsPerRecord, events->size() - first);
      block.clear();
      for (size_t i = 0; i < count; ++i) block.add((*events)[first + i]);
      writer.add(RecordType::timed_event_rows, block.block(), static_cast<uint32_t>(count), packing);
    }
  }
  TRY(writer.write());
  return FileEnd{TraceFiles::segment_name(unit), writer.written(), writer.items()};
}

}  // namespace parts

inline Result<TraceParts> take_apart(Storage& storage, const TraceFiles& files) {
  TraceParts made;
  const auto journal = [&](const RecordHeader& header, std::span<const uint8_t> payload) -> Result<void> {
    if (decode(header.type, payload, made.journal.emplace_back())) return {};
    return damage(files.journal(), header.offset, "the journal cannot be decoded");
  };
  ASSIGN_OR_RETURN(const auto file, RecordFile::open(storage, files.journal(), FileKind::journal, 0, 0, Tail::torn));
  TRY(file->for_each_payload(journal));
  TRY(parts::read_all_events(storage, files, made));
  TRY(parts::read_images(storage, files, made));
  TRY(parts::read_payloads(storage, files, made));
  return made;
}

// Writes everything except the journal. Returns what the journal must then say: the records of the parts, with the
// right places, sizes and counts.
inline Result<std::vector<JournalRecord>> write_contents(const TraceParts& parts, Storage& storage,
                                                         const TraceFiles& files, Compressor* packing) {
  std::vector<JournalRecord> journal = parts.journal;
  std::vector<FileEnd> ends;
  std::vector<const std::vector<Event>*> together;
  uint64_t items = 0;
  std::map<UnitId, ShortUnit> short_units;
  for (auto& record : journal) {
    auto* const place = std::get_if<ShortUnit>(&record);
    const auto events = place ? parts.events.find(place->unit) : parts.events.end();
    if (events == parts.events.end()) continue;
    const auto [known, fresh] =
        short_units.try_emplace(place->unit, ShortUnit{place->unit, items, events->second.size()});
    *place = known->second;
    if (!fresh) continue;
    together.push_back(&events->second);
    items += events->second.size();
  }
  const auto add_segment = [&](UnitId unit, const std::vector<const std::vector<Event>*>& series) -> Result<void> {
    if (std::all_of(series.begin(), series.end(), [](const auto* events) { return events->empty(); })) return {};
    ASSIGN_OR_RETURN(const FileEnd end, parts::write_events(storage, files, unit, series, packing));
    ends.push_back(end);
    return {};
  };
  TRY(add_segment(TraceFiles::kShortUnits, together));
  for (const auto& [unit, events] : parts.events) {
    if (!short_units.contains(unit)) TRY(add_segment(unit, {&events}));
  }

  RecordWriter pages(storage, files.pages(), FileKind::pages);
  for (size_t first = 0; first < parts.pages.size(); first += kPagesPerRecord) {
    Bytes block;
    const size_t end = std::min<size_t>(first + kPagesPerRecord, parts.pages.size());
    for (size_t i = first; i < end; ++i) block.insert(block.end(), parts.pages[i].begin(), parts.pages[i].end());
    pages.add(RecordType::pages, block, static_cast<uint32_t>(end - first), packing);
  }
  TRY(pages.write());
  if (pages.exists()) ends.push_back({TraceFiles::pages_name(), pages.written(), pages.items()});

  RecordWriter images(storage, files.images(), FileKind::image);
  std::vector<ImagePublished> published;
  for (const auto& image : parts.images) {
    Encoder header;
    if (const auto* state = std::get_if<UnitState>(&image.header)) encode(*state, header);
    const auto* const raw = std::get_if<Bytes>(&image.header);
    std::vector<Image::Page> sorted = image.pages;
    const uint64_t first = add_image(images, raw ? *raw : header.take(), sorted);
    TRY(images.write());
    published.push_back(
        {image.unit, image.interval, sorted.size(), images.written(), pages.written(), pages.items(), first, false});
  }
  if (images.exists()) ends.push_back({TraceFiles::images_name(), images.written(), images.items()});

  std::map<UnitId, PayloadsPublished> payloads_published;
  for (const auto& [unit, payloads] : parts.payloads) {
    PayloadFileWriter writer(storage, files.payloads(unit), unit);
    for (const auto& [event, payload] : payloads) writer.add(event, payload);
    Compressor compressor(1);
    TRY(writer.write(compressor));
    payloads_published[unit] = {unit, writer.written(), writer.items()};
  }

  size_t next_image = 0;
  for (auto& record : journal) {
    if (auto* const image = std::get_if<ImagePublished>(&record); image && next_image < published.size()) {
      *image = published[next_image++];
    } else if (auto* const payloads = std::get_if<PayloadsPublished>(&record)) {
      if (payloads_published.contains(payloads->unit)) *payloads = payloads_published[payloads->unit];
    } else if (auto* const end = std::get_if<JournalEnd>(&record)) {
      end->files = ends;
    }
  }
  return journal;
}

inline Result<void> write_journal(const std::vector<JournalRecord>& records, Storage& storage,
                                  const TraceFiles& files) {
  JournalWriter writer(storage, files.journal());
  for (const auto& record : records) writer.add(record);
  if (const auto written = writer.write(); !written) return written.error();
  return {};
}

}  // namespace redrive
