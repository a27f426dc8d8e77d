// What a user waits for in a recording of which only the last part is kept: when it happens, a snapshot is taken
// (record --trigger). This class only says that it has happened.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "logstore/event.h"

struct re_pattern_buffer;

namespace redrive {

struct TraceeEnd;

// An extended regular expression (regex(7)). `^` and `$` are the beginning and end of a line.
class LinePattern {
 public:
  static Result<LinePattern> parse(const std::string& text);
  // The line of the first match.
  std::optional<std::string_view> find_line(std::string_view text) const;

 private:
  std::shared_ptr<re_pattern_buffer> compiled_;
};

struct Trigger {
  enum class Kind : uint8_t {
    exit,    // a process exits with this status, or with another one
    killed,  // a signal ends a process: this one, or one that means that it has crashed, or any
    file,    // a file with this name is there, and was not
    signal,  // redrive is sent this signal, which the program then does not get
    reply,   // something that came on a stream was not answered there within this time
    writes,  // a line that is written to any descriptor fits the pattern
  };
  Kind kind = Kind::exit;
  std::string text;    // as the user wrote it
  int number = 0;      // the status, or the signal; 0: any
  bool other = false;  // ... than that status
  bool crash = false;
  std::string path;
  uint64_t longest_ns = 0;
  LinePattern pattern;
};

// "exit=N", "exit!=N", "crash", "killed", "killed=SIGNAL", "file=PATH", "signal=SIGNAL", "reply>D" or
// "writes=REGEX".
Result<Trigger> parse_trigger(const std::string& text);

// May be called from the record loop and from the thread that makes events of served calls.
class Triggers {
 public:
  // `now`: the time of the event that is made (EventClock).
  Triggers(std::vector<Trigger> triggers, const EventTime& now);
  bool exist() const { return !triggers_.empty(); }
  bool watch_writes() const { return watches_writes_; }

  void note_end(UnitId unit, const std::string& program, const TraceeEnd& end) EXCLUDES(mutex_);
  // The unit has received something on a stream, or sends something on the one in the other direction.
  void note_request(UnitId unit, uint64_t reply_channel) EXCLUDES(mutex_);
  void note_reply(uint64_t channel) EXCLUDES(mutex_);
  // These bytes were written to a descriptor, -1 if there is none. A line may come in pieces.
  void note_written(UnitId unit, pid_t process, int descriptor, std::string_view bytes) EXCLUDES(mutex_);
  // Whether redrive was sent this signal for a trigger.
  bool takes_signal(int signal, uint64_t now_ns) EXCLUDES(mutex_);
  // At each tick: what has happened without an event.
  void look(uint64_t now_ns) EXCLUDES(mutex_);

  struct Happened {
    std::string what;
    uint64_t at_ns = 0;  // on CLOCK_MONOTONIC
  };
  // The first since the last call.
  std::optional<Happened> take() EXCLUDES(mutex_);

 private:
  struct Request {
    UnitId unit = 0;
    EventTime at;
    bool reported = false;
  };
  void report(const Trigger& trigger, const std::string& detail, uint64_t at_ns) REQUIRES(mutex_);
  void check(Request& request, uint64_t now_ns) REQUIRES(mutex_);

  const std::vector<Trigger> triggers_;
  const EventTime& now_;
  uint64_t longest_ns_ = 0;  // of the triggers for replies, the shortest; 0: there is none
  bool watches_writes_ = false;

  Mutex mutex_;
  std::map<uint64_t, Request> requests_ GUARDED_BY(mutex_);  // not answered yet, by the channel of the answer
  // What was written since the last line ended, by unit, process and descriptor.
  std::map<std::tuple<UnitId, pid_t, int>, std::string> lines_ GUARDED_BY(mutex_);
  std::vector<bool> was_there_ GUARDED_BY(mutex_);  // the triggers' files
  std::optional<Happened> happened_ GUARDED_BY(mutex_);
};

}  // namespace redrive
