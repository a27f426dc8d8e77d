// What can be asked of a session, and by which name, whoever answers: its recorder, or redrived for it. It is the D-Bus
// interface org.redrive.Session1; the values below are what its methods return, and how they are put into messages.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "supervisor/session/systemd.h"

namespace redrive {

inline constexpr char kSessionInterface[] = "org.redrive.Session1";
inline constexpr char kSessionPath[] = "/org/redrive/Session1";  // where its recorder has it
// redrived, on the system bus. Its sessions are /org/redrive/Supervisor1/session/USER/NAME.
inline constexpr char kSupervisorName[] = "org.redrive.Supervisor1";
inline constexpr char kSupervisorInterface[] = "org.redrive.Supervisor1";
inline constexpr char kSupervisorPath[] = "/org/redrive/Supervisor1";
inline constexpr char kSessionsPath[] = "/org/redrive/Supervisor1/session";
// The errors of both. An error's message is the line for the user.
inline constexpr char kFailedError[] = "org.redrive.Error.Failed";
inline constexpr char kNoSessionError[] = "org.redrive.Error.NoSuchSession";

struct SessionName {
  uid_t user = 0;
  std::string name;

  bool operator==(const SessionName&) const = default;
};
// Where redrived has the session, which may or may not exist.
std::string object_path_of(const SessionName& session);
std::optional<SessionName> session_at(const std::string& path);

struct SessionStatus {
  std::string name;
  uint32_t user = 0;
  uint32_t recorder = 0, program = 0;  // processes
  uint32_t signals_to = 0;             // the process that takes signals for the program
  std::string state;                   // "recording", "incomplete", "stopping" or "finishing"
  std::vector<std::string> command;
  std::string trace;
  int64_t started_unix_us = 0;
  uint32_t units = 0, processes = 0;  // alive
  uint64_t events = 0;                // of the units alive
  double bound_s = 0;                 // 0: none
  double checkpoint_period_s = 0;
  double keep_s = 0;  // only the last part of the recording, of this length; 0: all, unless keep_bytes is set
  uint64_t keep_bytes = 0;
};

// Counts since the session began.
struct UnitActivity {
  uint32_t unit = 0;
  std::string name;
  uint32_t process = 0, interval = 0;
  uint64_t events = 0, served_calls = 0, stopped_calls = 0;
};
struct TalkActivity {
  uint32_t from = 0, to = 0;  // units
  uint64_t messages = 0, bytes = 0;
};
struct SessionActivity {
  uint64_t at_us = 0;  // by CLOCK_MONOTONIC
  std::vector<UnitActivity> units;
  std::vector<TalkActivity> talks;
};

// Counts of units that are alive.
struct CheckpointsTaken {
  uint32_t taken = 0;
  uint32_t pending = 0;  // taken with the unit's next event
};

// What was recorded is complete, except of so many units.
struct WindowCut {
  uint32_t units_behind = 0;
};

// The signatures of the values, and the values in messages. An Error: the message holds something else.
inline constexpr char kStatusSignature[] = "a{sv}";
inline constexpr char kActivitySignature[] = "ta(usuuttt)a(uutt)";
inline constexpr char kCheckpointsSignature[] = "uu";
inline constexpr char kWindowCutSignature[] = "u";
Result<void> append(sd_bus_message* message, const SessionStatus& status);
Result<void> append(sd_bus_message* message, const SessionActivity& activity);
Result<void> append(sd_bus_message* message, const CheckpointsTaken& checkpoints);
Result<void> append(sd_bus_message* message, const WindowCut& cut);
Result<void> parse(sd_bus_message* message, SessionStatus& status);
Result<void> parse(sd_bus_message* message, SessionActivity& activity);
Result<void> parse(sd_bus_message* message, CheckpointsTaken& checkpoints);
Result<void> parse(sd_bus_message* message, WindowCut& cut);

// The interface, in the form of sd_bus_add_object_vtable(3). What answers each of its methods:
struct SessionMethods {
  sd_bus_message_handler_t get_status, get_activity, checkpoint, cut_window, set_bound, set_keep, stop;
};
std::vector<sd_bus_vtable> session_interface(const SessionMethods& methods);

}  // namespace redrive
