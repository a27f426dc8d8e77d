#include "supervisor/plan/cuts.h"

#include <algorithm>
#include <set>

namespace redrive {
namespace {

constexpr uint64_t kBytesOfReceive = 16;       // that a kept payload takes beside its own
constexpr uint64_t kBytesOfBirth = 256 << 10;  // of a forked child's image: most of its pages are stored already
constexpr size_t kMostGroups = 48;
constexpr size_t kLast[] = {2, 4, 8, 16, 32};  // the last half, quarter, ... of what a run receives

uint64_t bytes_of(const Link& link, EventIndex from) {
  uint64_t bytes = link.is_birth && from == 0 ? kBytesOfBirth : 0;
  for (const Rdg::Dependence* const each : link.dependences) {
    if (each->receiver.event >= from) bytes += each->bytes + kBytesOfReceive;
  }
  return bytes;
}

std::vector<Cut> last_parts(const Cut& all) {
  std::vector<EventIndex> events;
  for (const Link* const link : all.links) {
    for (const Rdg::Dependence* const each : link->dependences) events.push_back(each->receiver.event);
  }
  std::ranges::sort(events);
  std::vector<Cut> parts;
  for (const size_t part : kLast) {
    if (events.size() < part) break;
    Cut cut{all.links, events[events.size() - events.size() / part], 0};
    for (const Link* const link : all.links) cut.bytes += bytes_of(*link, cut.from);
    parts.push_back(std::move(cut));
  }
  return parts;
}

}  // namespace

Links::Links(Rdg& graph, Rdg& thinned, const Plan& plan) : plan_(plan) {
  for (size_t r = 0; r < plan.replay_set.size(); ++r) {
    runs_[{plan.replay_set[r].unit, plan.replay_set[r].start}] = r;
  }
  for (size_t r = 0; r < plan.replay_set.size(); ++r) {
    const PlannedInterval& run = plan.replay_set[r];
    const auto& birth = graph.units.at(run.unit)[run.start].birth;
    const auto parent = birth ? run_of(graph, *birth) : std::nullopt;
    if (parent) link(r, *parent).is_birth = true;
    add(graph, r, &Link::dependences);
    add(thinned, r, &Link::thinned);
  }
  for (auto& [between, link] : links_) link.bytes = bytes_of(link, 0);
}

std::vector<std::vector<Cut>> Links::cuts() const {
  std::vector<Cut> single;
  std::map<size_t, Cut> by_receiver, by_sender;
  for (const auto& [between, link] : links_) {
    if (link.bytes == 0) continue;
    single.emplace_back().add(link);
    by_receiver[between.first].add(link);
    by_sender[between.second].add(link);
  }
  std::vector<std::vector<Cut>> kinds(3);
  kinds[0] = std::move(single);
  for (auto& [run, cut] : by_receiver) kinds[1].push_back(std::move(cut));
  for (auto& [run, cut] : by_sender) kinds[2].push_back(std::move(cut));
  if (!by_receiver.contains(0)) return kinds;
  kinds.push_back(around_groups());
  kinds.push_back(last_parts(kinds[1].front()));
  return kinds;
}

std::optional<Cut> Links::around_wanted() const {
  Cut cut;
  for (auto at = links_.begin(); at != links_.end() && at->first.first == 0; ++at) cut.add(at->second);
  return cut.links.empty() ? std::nullopt : std::optional(std::move(cut));
}

// Which one executes an event.
std::optional<size_t> Links::run_of(const Rdg& graph, EventRef event) const {
  const auto interval = graph.interval_of(event);
  if (!interval) return std::nullopt;
  const auto after = runs_.upper_bound({event.unit, *interval});
  if (after == runs_.begin() || std::prev(after)->first.first != event.unit) return std::nullopt;
  return std::prev(after)->second;
}

Link& Links::link(size_t receiver, size_t sender) {
  Link& link = links_[{receiver, sender}];
  link.receiver = plan_.replay_set[receiver].unit;
  link.start = plan_.replay_set[receiver].start;
  return link;
}

void Links::add(Rdg& graph, size_t receiver, std::vector<Rdg::Dependence*> Link::*to) {
  const PlannedInterval& run = plan_.replay_set[receiver];
  const auto found = graph.unlogged.find(run.unit);
  if (found == graph.unlogged.end()) return;
  auto& unlogged = found->second;
  for (size_t i = first_at(unlogged, graph.units.at(run.unit)[run.start].first_event); i < unlogged.size(); ++i) {
    if (unlogged[i].receiver.event >= run.requisite_event) break;
    if (unlogged[i].is_kept) continue;
    const auto sender = run_of(graph, unlogged[i].sender);
    if (sender && *sender != receiver) (link(receiver, *sender).*to).push_back(&unlogged[i]);
  }
}

// Groups that begin with the wanted run, and grow by the one from which they receive most.
std::vector<Cut> Links::around_groups() const {
  std::map<size_t, std::vector<std::pair<size_t, const Link*>>> received;  // by receiving run
  for (const auto& [between, link] : links_) received[between.first].emplace_back(between.second, &link);
  std::vector<Cut> cuts;
  std::set<size_t> group;
  std::map<size_t, Cut> outside;  // what the group receives, by sending run
  for (size_t next = 0; cuts.size() < kMostGroups;) {
    group.insert(next);
    outside.erase(next);
    for (const auto& [sender, link] : received[next]) {
      if (!group.contains(sender)) outside[sender].add(*link);
    }
    if (outside.empty()) break;
    Cut& cut = cuts.emplace_back();
    for (const auto& [sender, its] : outside) {
      for (const Link* const link : its.links) cut.add(*link);
    }
    next = std::ranges::max_element(outside, {}, [](const auto& each) { return each.second.bytes; })->first;
  }
  return cuts;
}

}  // namespace redrive
