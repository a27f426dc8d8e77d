#include "supervisor/cli/join_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "checkpoint/address_space.h"
#include "supervisor/cli/columns.h"

namespace redrive {
namespace {

// What is shared, whose name is that of its mapping (proc_pid_maps(5)); the kernel gives one to memory without a file,
// too.
std::string name_of(const std::string& mapping) {
  if (mapping.empty()) return "memory";
  if (is_sysv_segment(mapping)) return "System V shared memory (shmget)";
  if (is_shared_without_file(mapping)) return "anonymous memory (MAP_SHARED)";
  return printable(mapping);
}

}  // namespace

std::vector<std::string> describe_joins(const Trace& trace) {
  struct Group {
    UnitId unit;
    std::string object;
    std::vector<UnitId> joined;
    size_t forked = 0;
  };
  std::vector<Group> groups;
  std::map<std::pair<UnitId, std::string_view>, size_t> places;  // in `groups`
  for (const Join& join : trace.joins()) {
    const auto [place, is_new] = places.try_emplace({join.unit, join.object}, groups.size());
    if (is_new) groups.push_back({join.unit, join.object, {}, 0});
    Group& group = groups[place->second];
    if (join.joined) {
      group.joined.push_back(join.joined);
    } else {
      ++group.forked;
    }
  }
  std::vector<std::string> sentences;
  for (const Group& group : groups) {
    constexpr size_t kNamed = 8;
    const std::string object = name_of(group.object);
    const std::string unit = fmt::format("unit {} ({})", group.unit, printable(trace.unit_name(group.unit)));
    if (!group.joined.empty()) {
      const auto named = std::span(group.joined).first(std::min(kNamed, group.joined.size()));
      const bool more = named.size() < group.joined.size();
      sentences.push_back(fmt::format(
          "unit{} {}{} became part of {}, because they share {}", group.joined.size() == 1 ? "" : "s",
          fmt::join(named, ", "), more ? fmt::format(" and {} more", group.joined.size() - kNamed) : "", unit, object));
    }
    if (group.forked) {
      sentences.push_back(fmt::format("{} forked by {} stayed part of it, because {} {}",
                                      group.forked == 1 ? "a process" : fmt::format("{} processes", group.forked), unit,
                                      group.forked == 1 ? "it shares" : "they share", object));
    }
  }
  return sentences;
}

}  // namespace redrive
