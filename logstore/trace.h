// A trace directory: TraceWriter makes one while a recording runs, Trace reads one. FORMAT.md describes the bytes.
//
// All files are append-only or published whole (written under another name, synced, renamed). SIGKILL loses only what
// was not flushed. Trace cuts a torn last record, and reports any other damage by file and offset (Status::damaged).
// The segments are the truth; catalog.sqlite is derived from them, for those who ask for it (catalog_path).
//
// The writer holds a lock (flock(2)) on the directory. A trace without an end is being recorded if the lock is held;
// otherwise its recorder was killed. Readers do not lock.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/page.h"
#include "base/result.h"
#include "logstore/event.h"
#include "logstore/storage.h"
#include "logstore/wall_clock.h"

namespace redrive {

enum class CheckpointKind : uint8_t {
  exec,
  fork,
  image
};  // `fork` has no image of its own: it starts at the parent's event
const char* name(CheckpointKind kind);

struct Settings {
  std::string policy;  // policy_text()
  double critical_path_s = 0;
  double checkpoint_period_s = 0;
  double bound_s = 0;         // 0: none
  double restore_cost_s = 0;  // measured on the recording host
  std::vector<std::string> command;
  std::string working_directory;
  std::string host;  // uname, CPU model: what `check` compares on another machine
  int64_t started_unix_ns = 0;

  // False if its policy keeps nothing, or its checkpoints are virtual and it was not prepared yet.
  bool keeps_bound() const { return bound_s > 0; }
  // Readers refuse other times than 0 to 1e9 s.
  bool has_possible_times() const;
};

struct UnitRecord {
  UnitId unit = 0;
  int32_t pid = 0;
  EventRef parent;  // the fork that bore it; unit 0 for the first
  std::vector<UnitId> joined;
};

struct IntervalRecord {
  UnitId unit = 0;
  IntervalIndex interval = 0;
  CheckpointKind kind = CheckpointKind::exec;
  EventIndex first_event = 0;
  bool has_image = false;  // an image was published (exec, image; fork if the policy asked for one)
  int32_t pid = 0;
  std::string command;    // basename of the program, arguments appended, at most 200 bytes
  uint64_t pause_ns = 0;  // how long the unit was stopped for it
  uint64_t began_ns = 0;  // on CLOCK_MONOTONIC; 0: not known
  uint64_t threads = 0;   // of the unit at its beginning; 0: not known
};

// CPU time and counts of an interval that has ended.
struct IntervalEnd {
  UnitId unit = 0;
  IntervalIndex interval = 0;
  uint64_t cpu_ns = 0;
  EventIndex end_event = 0;     // one past its last event
  Bytes state = {};             // of a process that ends with it, for comparison in a replay; opaque here, or empty
  uint64_t clock_error_ns = 0;  // by how much the time of one of its sends and receives may be wrong; 0 also if unknown
  uint64_t ended_ns = 0;        // on CLOCK_MONOTONIC; 0: not known
};

struct ChannelRecord {
  uint64_t channel = 0;
  std::string kind;  // "pipe", "fifo", "unix", "unix-dgram", "tcp", "udp", ...
  std::string name;  // addresses or path, for people
};

struct FileRecord {
  uint64_t file = 0;
  std::string path;  // as mapped
  std::string copy;  // file name below files/ (its content hash)
  uint64_t size = 0;
};

struct Refusal {
  UnitId unit = 0;
  std::string what;    // syscall (and sub-command) name
  std::string answer;  // "ENOSYS", "EPERM", ...
  uint64_t count = 0;
};

struct Unsure {
  UnitId unit = 0;
  EventIndex event = 0;
  std::string reason;
};

// How a unit's calls were recorded: inside the process, or by stops.
struct Interception {
  UnitId unit = 0;
  uint64_t served = 0;
  uint64_t stopped = 0;
};

// An instruction at which threads stopped although the code inside tracees could have served the call: it is used too
// seldom to be replaced, or no jump can replace it.
struct StoppingSite {
  std::string file;  // as mapped
  uint64_t offset = 0;
  std::string instruction;  // "syscall", "cpuid"
  uint64_t stops = 0;
  bool patchable = false;  // a jump fits there
};

// Why processes that would have been in two units are in one: an object that they have mapped shared and can change.
struct Join {
  UnitId unit = 0;
  UnitId joined = 0;  // the unit that became part of it; 0: a process that it forked stayed in it
  EventIndex event = 0;
  int32_t pid = 0;     // of the process that joined
  std::string object;  // as in /proc/PID/maps
};

// Images that CRIU was to make (redrive(1), record --checkpoint-engine).
struct CriuImages {
  uint64_t made = 0;
  uint64_t failed = 0;      // our own in their place
  std::string first_error;  // of CRIU; empty if it had none
};

// Reasons of ends of recordings whose program has not ended: those that are known to others than the recorder.
inline constexpr char kGoesOn[] = "goes on";
inline constexpr char kLetGo[] = "let go";

struct RecordingEnd {
  int32_t exit_status = 0;  // as `record` returns it
  std::string reason;       // "exited", "interrupted", ...
  double wall_s = 0;
  uint64_t skipped_checkpoints = 0;
  CriuImages criu_images;
};

// What a recording says beside events, images and files.
using TraceFact = std::variant<UnitRecord, IntervalRecord, IntervalEnd, ChannelRecord, Refusal, Unsure, Interception,
                               StoppingSite, Join, WallClockRecord>;

// Takes whole, adjacent pages of one process of the unit.
using AddPages = std::function<Result<void>(uint32_t process, Address address, std::span<const uint8_t> pages)>;
// Hands over all pages of an image, in any order, and returns its header (opaque here: checkpoint/unit_state.h).
using ReadImage = std::function<Result<Bytes>(const AddPages& add)>;

class FileCache;

class TraceWriter {
 public:
  // Creates `directory`, which must not exist. The error says so if it does exist, or cannot be created or written.
  // `cache`: what is known of files already; may be null.
  // `in_volumes`: the trace's beginning can be removed while it grows; see begin_volume().
  static Result<std::unique_ptr<TraceWriter>> create(const std::string& directory, const Settings& settings,
                                                     Storage& storage = disk(), FileCache* cache = nullptr,
                                                     bool in_volumes = false);
  ~TraceWriter();

  // Events are buffered. A separate thread packs and writes them whenever buffers exceed 256 KiB. If that thread falls
  // behind by a few batches, append() waits. The first I/O error (a full disk) is kept. It makes everything later a
  // no-op, and write_behind(), flush() and finish() return it; the recording then ends, and what was written before it
  // stays intact.
  EventIndex append(UnitId unit, const Event& event) { return append(segment(unit), event); }  // the event's number
  // The same, for a caller that has looked up where the unit's events go; valid until end_unit().
  struct Segment;
  Segment& segment(UnitId unit);
  EventIndex append(Segment& segment, const Event& event);
  // All the bytes that an unlogged receive returned; they are kept after all. They become part of the trace when the
  // next image is published, or at the end. If the recording is killed before that, the receive is unlogged.
  void add_payload(EventRef receiver, Bytes payload);
  void end_unit(UnitId unit);  // no event of it follows: its memory is released
  void add(const TraceFact& fact);
  Result<void> write_behind();  // soon writes what is buffered now
  Result<void> flush();         // the same, and waits for it

  // Copies a file into the trace, once per content. The file is opened through `open_path` (such as
  // /proc/PID/map_files/...) and called `path` in the trace. `identified`: its version identifies its content (it
  // is_settled(), and nobody can write to it through a mapping, which does not change its times at once), so the cache
  // may know it.
  Result<uint64_t> add_file(const std::string& open_path, const std::string& path, bool identified);

  // Writes an image. From then on SIGKILL cannot take it away; when publish_images() has returned, a power failure
  // cannot either. Equal pages are stored once, zero pages not at all. These four functions may be called from another
  // thread than the rest, by one thread at a time. An error of `read` is returned and does no harm to the writer.
  struct ImageStats {
    uint64_t pages = 0, new_pages = 0, bytes = 0;
  };
  Result<ImageStats> write_image(UnitId unit, IntervalIndex interval, const ReadImage& read);
  // Syncs all images that were written, and adds an ImagePublished record for each to the journal. A sync waits for the
  // disk, however little it writes.
  Result<void> publish_images();
  Result<ImageStats> publish_image(UnitId unit, IntervalIndex interval, const ReadImage& read);  // both
  void end_images(UnitId unit);  // no image of it follows: its pages need not be remembered

  const std::string& directory() const;
  uint64_t bytes_written() const;
  Result<void> finish(const RecordingEnd& end);  // flush and sync

  // ---- Volumes. Each is a part of the trace that needs nothing of the others: when its interval with an image begins,
  // a unit goes on in the newest volume. Payloads of messages from one volume into another must be kept
  // (in_one_volume()).
  using VolumeNumber = uint64_t;
  bool in_volumes() const;
  // Channels that are still open have to be added again. `changed`: the settings from now on; null: those until now.
  Result<void> begin_volume(const Settings* changed = nullptr);
  // Whether the event is in the volume in which the unit is.
  bool in_one_volume(UnitId unit, EventRef event) const;
  struct VolumeState {
    VolumeNumber number = 0;
    uint64_t bytes = 0;
    bool left = false;  // all units go on in newer ones
    bool closed = false;
    bool finished = false;
  };
  std::vector<VolumeState> volumes() const;  // the newest is the last
  bool is_in_volume(VolumeNumber number, EventRef event) const;
  // All units have left it, and what was held of it (add_payload()) is decided: only images may follow.
  void close_volume(VolumeNumber number);
  // Its images are written too. It is closed. This waits for the disk, and may be called from any thread.
  Result<void> finish_volume(VolumeNumber number, const RecordingEnd& end);
  // A finished one, with the copies of files that only it names.
  Result<void> remove_volume(VolumeNumber number);
  // Whether the number of a copy is valid: it is as long as a volume names it. A pinned one stays valid.
  bool has_file(uint64_t file) const;
  void pin_file(uint64_t file);
  void mention_file(UnitId unit, uint64_t file);  // an image of the unit needs it

 private:
  struct State;
  explicit TraceWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct Image {
  Bytes header;
  // Every stored page of the image: process, address, and id.
  struct Page {
    uint32_t process;
    Address address;
    uint64_t page_id;
  };
  std::vector<Page> pages;  // sorted by process, address
};

// The pages are valid until it returns.
using VisitPages = std::function<Result<void>(std::span<const PageRef> pages)>;

class Trace {
 public:
  // Opens the trace and verifies its journal; event segments are read when they are needed. Thread-safe afterwards.
  static Result<std::shared_ptr<Trace>> open(const std::string& directory, Storage& storage = disk());
  ~Trace();

  const std::string& directory() const;
  Storage& storage() const;
  // Changes whenever the journal or a segment does. What is derived from a trace keeps it, to detect that it is stale.
  uint64_t fingerprint() const;
  const Settings& settings() const;
  bool finished() const;            // false: the recorder was killed, or is
  bool recording() const;           // ... is still at work when the trace is opened
  const RecordingEnd& end() const;  // zeros if not finished
  const std::vector<UnitRecord>& units() const;
  const std::vector<IntervalRecord>& intervals(
      UnitId unit) const;  // by interval index; published images have has_image
  const IntervalEnd* interval_end(UnitId unit, IntervalIndex interval) const;
  const std::vector<ChannelRecord>& channels() const;
  const std::map<uint64_t, FileRecord>& files() const;
  const std::vector<Refusal>& refusals() const;
  const std::vector<Unsure>& unsure() const;
  // Written when a recording ends. Only the sites with the most stops are listed, those with the most first.
  const std::vector<Interception>& interceptions() const;
  const std::vector<StoppingSite>& stopping_sites() const;
  const std::vector<Join>& joins() const;
  std::string unit_name(UnitId unit) const;  // "jacobi.2": program of its last interval, numbered if several have it
  // Finds the UNIT that a user named: by number, name or process number.
  Result<UnitId> find_unit(const std::string& text) const;

  EventIndex event_count(UnitId unit) const;
  // Visits events [first, last) of a unit in order; stops early if the callback returns false. During a visit, the
  // event of the previous visit is still valid.
  Result<void> for_each_event(UnitId unit, EventIndex first, EventIndex last,
                              const std::function<bool(EventIndex, const Event&)>& visit) const;

  Result<Image> image(UnitId unit, IntervalIndex interval) const;
  uint64_t stored_bytes(UnitId unit, IntervalIndex interval) const;  // of the image's pages; 0 if there is none
  // Reads pages in the order in which the store has them, a few dozen at a time, each record of the store once. An
  // error of the visitor ends it.
  Result<void> read_pages(std::vector<Image::Page> pages, const VisitPages& visit) const;
  // The path of a file copy, which has the right size. Its bytes are verified meanwhile: whoever uses it asks
  // used_copies_are_good() at the end.
  Result<std::string> file_path(uint64_t file) const;

  uint64_t size_on_disk() const;

  struct State;
  const State& state() const;  // for the rest of logstore

 private:
  explicit Trace(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// When the times of events and intervals were. Traces up to format 10 have no time of day: nothing is known then.
const WallClock& wall_clock(const Trace& trace);

// As `record` returned it; none if the program had not ended when the recording did.
std::optional<int32_t> exit_status(const Trace& trace);

// Of the images and their pages, on the disk.
uint64_t stored_image_bytes(const Trace& trace);

// Waits until all copies whose paths Trace::file_path has returned are verified. Status::damaged if one is not good.
Result<void> used_copies_are_good(const Trace& trace);

// Verifies every byte of every file of a trace, except the catalog. Returns all damage found, each as "FILE: offset N:
// what".
std::vector<std::string> check_trace(const Trace& trace);

// Makes catalog.sqlite anew from the segments. Schema: FORMAT.md, "Catalog".
Result<void> build_catalog(const Trace& trace);
// Whether somebody has changed it since.
Result<bool> is_catalog_changed(const Trace& trace);
// The path of the catalog, which is made first if it is absent, stale or changed.
Result<std::string> catalog_path(const Trace& trace);
// The catalog's schema in SQL: the documented one.
const char* catalog_schema();

// Where traces are kept: $REDRIVE_TRACE_DIR, or else $XDG_DATA_HOME/redrive, or else ~/.local/share/redrive.
std::string trace_home();
// A directory for a new trace of `program`: HOME/NAME-N. The `latest` link is set to it once recording starts.
Result<std::string> new_trace_directory(const std::string& program);
Result<void> set_latest(const std::string& directory);
// Finds the TRACE that a user named: a path, a name below trace_home(), or "" for the latest.
Result<std::string> find_trace(const std::string& text);
// Names of the traces below trace_home().
Result<std::vector<std::string>> list_traces();

}  // namespace redrive
