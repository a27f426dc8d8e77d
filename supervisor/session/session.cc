#include "supervisor/session/session.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "base/utf8.h"

#include "base/text.h"

namespace redrive {
namespace {

// systemd has no characters that Unicode sets aside for other uses in its strings (sd_bus_message_append(3)).
bool may_be_in_message(char32_t code) { return (code & 0xfffe) != 0xfffe && (code < 0xfdd0 || code > 0xfdef); }

// D-Bus strings are UTF-8: other bytes become "?".
std::string as_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto character = first_character(text);
    const size_t size = character ? character->size : 1;
    out += character && may_be_in_message(character->code) ? text.substr(0, size) : "?";
    text.remove_prefix(size);
  }
  return out;
}

// Keeps the first failure of a sequence of calls.
class Calls {
 public:
  Calls& operator<<(int result) {
    if (first_ >= 0 && result < 0) first_ = result;
    return *this;
  }
  Result<void> result(const char* what) const { return check_systemd(first_, what); }

 private:
  int first_ = 0;
};

constexpr char kCannotWrite[] = "cannot make a message";
constexpr char kCannotRead[] = "the session's answer cannot be read: is it recorded by another version of redrive?";

// A dictionary entry of a status.
class Entries {
 public:
  explicit Entries(sd_bus_message* message) : message_(message) {}
  void add(const char* key, const char* type, const void* value) {
    calls_ << open(key, type) << systemd().bus_message_append_basic(message_, type[0], value);
    close();
  }
  void add(const char* key, const std::string& value) { add(key, "s", as_utf8(value).c_str()); }
  // What is used as a path travels as bytes.
  void add_path(const char* key, const std::string& path) {
    calls_ << open(key, "ay") << systemd().bus_message_append_array(message_, 'y', path.data(), path.size());
    close();
  }
  void add(const char* key, const std::vector<std::string>& values) {
    calls_ << open(key, "as") << systemd().bus_message_open_container(message_, 'a', "s");
    for (const auto& value : values)
      calls_ << systemd().bus_message_append_basic(message_, 's', as_utf8(value).c_str());
    calls_ << systemd().bus_message_close_container(message_);
    close();
  }
  Calls& calls() { return calls_; }

 private:
  int open(const char* key, const char* type) {
    calls_ << systemd().bus_message_open_container(message_, 'e', "sv")
           << systemd().bus_message_append_basic(message_, 's', key);
    return systemd().bus_message_open_container(message_, 'v', type);
  }
  void close() {
    calls_ << systemd().bus_message_close_container(message_) << systemd().bus_message_close_container(message_);
  }

  sd_bus_message* message_;
  Calls calls_;
};

int read_text(sd_bus_message* message, std::string& text) {
  const char* value = nullptr;
  const int result = systemd().bus_message_read_basic(message, 's', &value);
  if (result > 0) text = value;
  return result;
}

int read_path(sd_bus_message* message, std::string& path) {
  const void* bytes = nullptr;
  size_t size = 0;
  const int result = systemd().bus_message_read_array(message, 'y', &bytes, &size);
  if (result > 0) path.assign(static_cast<const char*>(bytes), size);
  return result;
}

int read_words(sd_bus_message* message, std::vector<std::string>& words) {
  char** values = nullptr;
  const int result = systemd().bus_message_read_strv(message, &values);
  for (char** value = values; value && *value; ++value) {
    words.emplace_back(*value);
    std::free(*value);
  }
  std::free(values);
  return result;
}

// The value of an entry. Keys that this version does not know are skipped.
int read_value(sd_bus_message* message, const std::string& key, SessionStatus& status) {
  const auto basic = [&](const char* type, void* value) {
    const int entered = systemd().bus_message_enter_container(message, 'v', type);
    if (entered < 0) return entered;
    const int result = systemd().bus_message_read_basic(message, type[0], value);
    return result < 0 ? result : systemd().bus_message_exit_container(message);
  };
  const auto text = [&](const char* type, auto& value, auto read) {
    const int entered = systemd().bus_message_enter_container(message, 'v', type);
    if (entered < 0) return entered;
    const int result = read(message, value);
    return result < 0 ? result : systemd().bus_message_exit_container(message);
  };
  if (key == "Name") return text("s", status.name, read_text);
  if (key == "User") return basic("u", &status.user);
  if (key == "Recorder") return basic("u", &status.recorder);
  if (key == "Program") return basic("u", &status.program);
  if (key == "SignalsTo") return basic("u", &status.signals_to);
  if (key == "State") return text("s", status.state, read_text);
  if (key == "Command") return text("as", status.command, read_words);
  if (key == "Trace") return text("ay", status.trace, read_path);
  if (key == "Started") return basic("x", &status.started_unix_us);
  if (key == "Units") return basic("u", &status.units);
  if (key == "Processes") return basic("u", &status.processes);
  if (key == "Events") return basic("t", &status.events);
  if (key == "Bound") return basic("d", &status.bound_s);
  if (key == "Keep") return basic("d", &status.keep_s);
  if (key == "KeepSize") return basic("t", &status.keep_bytes);
  if (key == "CheckpointPeriod") return basic("d", &status.checkpoint_period_s);
  return systemd().bus_message_skip(message, "v");
}

std::string sessions_of(uid_t user) { return fmt::format("{}/{}", kSessionsPath, user); }

}  // namespace

std::string object_path_of(const SessionName& session) {
  char* path = nullptr;
  systemd().bus_path_encode(sessions_of(session.user).c_str(), session.name.c_str(), &path);
  const std::string out = path ? path : "";
  std::free(path);
  return out;
}

std::optional<SessionName> session_at(const std::string& path) {
  const std::string prefix = std::string(kSessionsPath) + "/";
  if (!path.starts_with(prefix)) return {};
  const size_t slash = path.find('/', prefix.size());
  if (slash == std::string::npos) return {};
  const auto user = parse_number(path.substr(prefix.size(), slash - prefix.size()));
  if (!user || *user > UINT32_MAX) return {};
  SessionName session{static_cast<uid_t>(*user), {}};
  char* name = nullptr;
  if (systemd().bus_path_decode(path.c_str(), sessions_of(session.user).c_str(), &name) <= 0) return {};
  session.name = name;
  std::free(name);
  return session;
}

Result<void> append(sd_bus_message* message, const SessionStatus& status) {
  Entries entries(message);
  entries.calls() << systemd().bus_message_open_container(message, 'a', "{sv}");
  entries.add("Name", status.name);
  entries.add("User", "u", &status.user);
  entries.add("Recorder", "u", &status.recorder);
  entries.add("Program", "u", &status.program);
  entries.add("SignalsTo", "u", &status.signals_to);
  entries.add("State", status.state);
  entries.add("Command", status.command);
  entries.add_path("Trace", status.trace);
  entries.add("Started", "x", &status.started_unix_us);
  entries.add("Units", "u", &status.units);
  entries.add("Processes", "u", &status.processes);
  entries.add("Events", "t", &status.events);
  entries.add("Bound", "d", &status.bound_s);
  entries.add("CheckpointPeriod", "d", &status.checkpoint_period_s);
  entries.add("Keep", "d", &status.keep_s);
  entries.add("KeepSize", "t", &status.keep_bytes);
  entries.calls() << systemd().bus_message_close_container(message);
  return entries.calls().result(kCannotWrite);
}

Result<void> parse(sd_bus_message* message, SessionStatus& status) {
  status = {};
  Calls calls;
  calls << systemd().bus_message_enter_container(message, 'a', "{sv}");
  for (;;) {
    const int entered = systemd().bus_message_enter_container(message, 'e', "sv");
    calls << entered;
    if (entered <= 0) break;
    std::string key;
    calls << read_text(message, key) << read_value(message, key, status)
          << systemd().bus_message_exit_container(message);
    if (!calls.result(kCannotRead)) break;
  }
  calls << systemd().bus_message_exit_container(message);
  return calls.result(kCannotRead);
}

Result<void> append(sd_bus_message* message, const SessionActivity& activity) {
  const Systemd& sd = systemd();
  Calls calls;
  calls << sd.bus_message_append_basic(message, 't', &activity.at_us)
        << sd.bus_message_open_container(message, 'a', "(usuuttt)");
  for (const auto& unit : activity.units) {
    calls << sd.bus_message_append(message, "(usuuttt)", unit.unit, as_utf8(unit.name).c_str(), unit.process,
                                   unit.interval, unit.events, unit.served_calls, unit.stopped_calls);
  }
  calls << sd.bus_message_close_container(message) << sd.bus_message_open_container(message, 'a', "(uutt)");
  for (const auto& talk : activity.talks) {
    calls << sd.bus_message_append(message, "(uutt)", talk.from, talk.to, talk.messages, talk.bytes);
  }
  calls << sd.bus_message_close_container(message);
  return calls.result(kCannotWrite);
}

Result<void> parse(sd_bus_message* message, SessionActivity& activity) {
  const Systemd& sd = systemd();
  activity = {};
  Calls calls;
  calls << sd.bus_message_read_basic(message, 't', &activity.at_us)
        << sd.bus_message_enter_container(message, 'a', "(usuuttt)");
  for (;;) {
    UnitActivity unit;
    const char* name = nullptr;
    const int got = sd.bus_message_read(message, "(usuuttt)", &unit.unit, &name, &unit.process, &unit.interval,
                                        &unit.events, &unit.served_calls, &unit.stopped_calls);
    calls << got;
    if (got <= 0) break;
    unit.name = name;
    activity.units.push_back(std::move(unit));
  }
  calls << sd.bus_message_exit_container(message) << sd.bus_message_enter_container(message, 'a', "(uutt)");
  for (;;) {
    TalkActivity talk;
    const int got = sd.bus_message_read(message, "(uutt)", &talk.from, &talk.to, &talk.messages, &talk.bytes);
    calls << got;
    if (got <= 0) break;
    activity.talks.push_back(talk);
  }
  calls << sd.bus_message_exit_container(message);
  return calls.result(kCannotRead);
}

Result<void> append(sd_bus_message* message, const CheckpointsTaken& checkpoints) {
  return check_systemd(systemd().bus_message_append(message, "uu", checkpoints.taken, checkpoints.pending),
                       kCannotWrite);
}

Result<void> parse(sd_bus_message* message, CheckpointsTaken& checkpoints) {
  return check_systemd(systemd().bus_message_read(message, "uu", &checkpoints.taken, &checkpoints.pending),
                       kCannotRead);
}

Result<void> append(sd_bus_message* message, const WindowCut& cut) {
  return check_systemd(systemd().bus_message_append(message, "u", cut.units_behind), kCannotWrite);
}

Result<void> parse(sd_bus_message* message, WindowCut& cut) {
  return check_systemd(systemd().bus_message_read(message, "u", &cut.units_behind), kCannotRead);
}

std::vector<sd_bus_vtable> session_interface(const SessionMethods& methods) {
  return {
      SD_BUS_VTABLE_START(0),
      SD_BUS_METHOD_WITH_NAMES("GetStatus", "", "", kStatusSignature, SD_BUS_PARAM(status), methods.get_status,
                               SD_BUS_VTABLE_UNPRIVILEGED),
      SD_BUS_METHOD_WITH_NAMES("GetActivity", "", "", kActivitySignature,
                               SD_BUS_PARAM(time) SD_BUS_PARAM(units) SD_BUS_PARAM(talks), methods.get_activity,
                               SD_BUS_VTABLE_UNPRIVILEGED),
      SD_BUS_METHOD_WITH_NAMES("Checkpoint", "", "", kCheckpointsSignature, SD_BUS_PARAM(taken) SD_BUS_PARAM(pending),
                               methods.checkpoint, SD_BUS_VTABLE_UNPRIVILEGED),
      SD_BUS_METHOD_WITH_NAMES("CutWindow", "", "", kWindowCutSignature, SD_BUS_PARAM(units_behind), methods.cut_window,
                               SD_BUS_VTABLE_UNPRIVILEGED),
      SD_BUS_METHOD_WITH_NAMES("SetBound", "d", SD_BUS_PARAM(seconds), "", "", methods.set_bound,
                               SD_BUS_VTABLE_UNPRIVILEGED),
      SD_BUS_METHOD_WITH_NAMES("SetKeep", "d", SD_BUS_PARAM(seconds), "", "", methods.set_keep,
                               SD_BUS_VTABLE_UNPRIVILEGED),
      SD_BUS_METHOD_WITH_NAMES("Stop", "t", SD_BUS_PARAM(patience), "i", SD_BUS_PARAM(exit_status), methods.stop,
                               SD_BUS_VTABLE_UNPRIVILEGED),
      SD_BUS_VTABLE_END,
  };
}

}  // namespace redrive
