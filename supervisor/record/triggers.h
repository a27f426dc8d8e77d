// What a user waits for in a recording of which only the last part is kept: when it happens, a snapshot is taken
// (record --trigger). This class only says that it has happened.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "logstore/event.h"

namespace redrive {

struct TraceeEnd;

struct Trigger {
  enum class Kind : uint8_t {
    exit,    // a process exits with this status, or with another one
    killed,  // a signal ends a process: this one, or one that means that it has crashed, or any
    file,    // a file with this name is there, and was not
    signal,  // redrive is sent this signal, which the program then does not get
    reply,   // something that came on a stream was not answered there within this time
  };
  Kind kind = Kind::exit;
  std::string text;    // as the user wrote it
  int number = 0;      // the status, or the signal; 0: any
  bool other = false;  // ... than that status
  bool crash = false;
  std::string path;
  uint64_t longest_ns = 0;
};

// "exit=N", "exit!=N", "crash", "killed", "killed=SIGNAL", "file=PATH", "signal=SIGNAL" or "reply>D".
Result<Trigger> parse_trigger(const std::string& text);

class Triggers {
 public:
  // `now`: the time of the event that is made (EventClock).
  Triggers(std::vector<Trigger> triggers, const EventTime& now);
  bool exist() const { return !triggers_.empty(); }

  void note_end(UnitId unit, const std::string& program, const TraceeEnd& end);
  // The unit has received something on a stream, or sends something on the one in the other direction.
  void note_request(UnitId unit, uint64_t reply_channel);
  void note_reply(uint64_t channel);
  // Whether redrive was sent this signal for a trigger.
  bool takes_signal(int signal);
  // At each tick: what has happened without an event.
  void look(uint64_t now_ns);

  struct Happened {
    std::string what;
    uint64_t at_ns = 0;  // on CLOCK_MONOTONIC
  };
  // The first since the last call.
  std::optional<Happened> take() { return std::exchange(happened_, std::nullopt); }

 private:
  struct Request {
    UnitId unit = 0;
    EventTime at;
    bool reported = false;
  };
  void report(const Trigger& trigger, const std::string& detail, uint64_t at_ns);
  void check(Request& request, uint64_t now_ns);

  std::vector<Trigger> triggers_;
  const EventTime& now_;
  uint64_t longest_ns_ = 0;               // of the triggers for replies, the shortest; 0: there is none
  std::map<uint64_t, Request> requests_;  // not answered yet, by the channel of the answer
  std::vector<bool> was_there_;           // the triggers' files
  std::optional<Happened> happened_;
};

}  // namespace redrive
