// table_rows [TRACE...]: the rows of the syscall table that must be exercised, or those that the traces hold, one a
// line.
//
// A row is named as `redrive stats` does: "read", "fcntl(F_GETLK)". To be exercised are all but the refused; of a
// multiplexer its commands. A recorded call counts whatever its result: the programs check results themselves.
#include <fmt/format.h>

#include <set>

#include "interceptors/syscall_table.h"
#include "logstore/trace.h"

namespace redrive {
namespace {

std::string row_name(const SyscallRow& row) {
  return row.command_name ? fmt::format("{}({})", row.name, row.command_name) : row.name;
}

std::set<std::string> rows_of_table() {
  std::set<std::string> names;
  const auto add = [&](const SyscallRow& row) {
    if (row.treat != Treat::refuse && row.selector < 0) names.insert(row_name(row));
  };
  for (const SyscallRow& row : all_rows()) add(row);
  for (const SyscallRow* row : all_commands()) add(*row);
  return names;
}

Result<void> add_rows_of(const char* directory, std::set<std::string>& names) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Trace> trace, Trace::open(directory));
  for (const auto& unit : trace->units()) {
    TRY(trace->for_each_event(unit.unit, 0, trace->event_count(unit.unit), [&](EventIndex, const Event& event) {
      const bool call = event.kind == EventKind::syscall || event.kind == EventKind::entry;
      if (const SyscallRow* row = call ? find_row(event.number, event.args) : nullptr) names.insert(row_name(*row));
      return true;
    }));
  }
  return {};
}

Result<std::set<std::string>> rows_of_traces(std::span<char*> directories) {
  std::set<std::string> names;
  for (const char* directory : directories) TRY(add_rows_of(directory, names));
  return names;
}

}  // namespace
}  // namespace redrive

int main(int argc, char** argv) {
  using namespace redrive;
  const std::span<char*> directories(argv + 1, static_cast<size_t>(argc - 1));
  const auto names = directories.empty() ? rows_of_table() : rows_of_traces(directories);
  if (!names) {
    fmt::print(stderr, "table_rows: {}\n", names.error().message);
    return 1;
  }
  for (const std::string& name : names.value()) fmt::print("{}\n", name);
  return 0;
}
