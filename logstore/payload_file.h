// payloads/U.seg: payloads of messages that unit U received, stored after their events because a policy decided later,
// or by `redrive prepare`. A reader puts them back into the events, which then look as if they had been logged at once.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "logstore/event.h"
#include "logstore/journal.h"
#include "logstore/record_file.h"
#include "logstore/trace_files.h"

namespace redrive {

class PayloadFileWriter {
 public:
  PayloadFileWriter(Storage& storage, const std::string& path, UnitId unit)
      : writer_(storage, path, FileKind::payloads, unit) {}
  // Continues after what was published before.
  Result<void> resume(uint64_t size, uint64_t items) { return writer_.resume(size, items); }
  void add(EventIndex event, std::span<const uint8_t> payload);
  size_t buffered() const { return places_.size() + bytes_.size(); }  // bytes
  Result<void> write(Compressor& compressor);
  const std::string& path() const { return writer_.path(); }
  uint64_t written() const { return writer_.written(); }
  uint64_t items() const { return writer_.items(); }
  void close() { writer_.close(); }

 private:
  RecordWriter writer_;
  Encoder places_;
  Bytes bytes_;
  uint32_t items_ = 0;
};

// The payload files of all units. For one thread.
class PayloadWriter {
 public:
  PayloadWriter(Storage& storage, TraceFiles files);
  Result<void> resume(const PayloadsPublished& published);
  void add(EventRef receiver, std::span<const uint8_t> payload);
  size_t buffered() const { return buffered_; }       // bytes
  static constexpr size_t kWorthWriting = 256 << 10;  // bytes
  Result<void> write();                               // what is buffered
  // What was written since the previous call. The journal may mention it once the files are synced.
  std::vector<PayloadsPublished> take_written();

 private:
  PayloadFileWriter& of(UnitId unit);

  Storage& storage_;
  const TraceFiles files_;
  Compressor compressor_;
  std::map<UnitId, PayloadFileWriter> units_;
  std::map<UnitId, PayloadsPublished> written_;
  size_t buffered_ = 0;
};

// Thread-safe.
class PayloadFile {
 public:
  // `size`: how much was published according to the journal; more may follow.
  static Result<std::unique_ptr<PayloadFile>> open(Storage& storage, const std::string& path, UnitId unit,
                                                   uint64_t size);
  // Makes the receive a logged one, if its payload is here; false if not. Status::damaged if the payload does not fit
  // the receive.
  Result<bool> fill(EventIndex index, Event& event) const;
  const RecordFile& file() const { return *file_; }

 private:
  struct Place {
    EventIndex event = 0;
    const RecordHeader* record = nullptr;
    uint64_t offset = 0, length = 0;  // in its payload
  };
  explicit PayloadFile(std::unique_ptr<RecordFile> file) : file_(std::move(file)) {}
  Result<void> list();
  void drop_replaced();
  Result<void> list(const RecordHeader& places, const RecordHeader& bytes, Unpacker& unpacker);
  Result<void> list_old(const RecordHeader& record, Unpacker& unpacker);

  std::unique_ptr<RecordFile> file_;
  std::vector<Place> places_;  // by event
  // The bytes of a record.
  using Contents = std::shared_ptr<const Bytes>;
  Result<Contents> contents_of(const RecordHeader& record) const;

  // Those that were read last, the last one first. Receives are read in order, and many share a record; but what was
  // added later is in other records than what was there before.
  mutable Mutex mutex_;
  mutable std::vector<std::pair<const RecordHeader*, Contents>> read_ GUARDED_BY(mutex_);
};

}  // namespace redrive
