// The drop-in with which systemd starts a service under `redrive record`: made from the service's own unit file, so
// that it runs as it would without, apart from what would keep it from being recorded.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "supervisor/service/unit_file.h"

namespace redrive {

inline constexpr char kDropInName[] = "redrive.conf";
// Traces of services, below a directory for each unit.
inline constexpr char kServiceTraces[] = "/var/lib/redrive/services";
// Is in the environment of a recorder that systemd has started: nothing keeps the service from starting that it can do
// without.
inline constexpr char kServiceVariable[] = "REDRIVE_SERVICE";

struct DropIn {
  std::string text;
  std::vector<std::string> relaxed;  // settings of the sandbox that a recorded service does without
};

// `redrive`: the path of the program. `options`: of redrive record, for all commands of the service. Fails with one
// line if systemd cannot start this service under redrive.
Result<DropIn> make_drop_in(const UnitFile& unit, const std::string& redrive, const std::vector<std::string>& options);

// A word as systemd.service(5) reads it in a command line.
std::string quote_for_systemd(const std::string& word);

}  // namespace redrive
