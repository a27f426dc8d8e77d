#include "supervisor/record/tracees/shared_mappings.h"

#include <algorithm>

namespace redrive {

void SharedMappings::read(pid_t pid) {
  if (known_) return;
  const auto mappings = read_mappings(pid);
  if (!mappings) return;
  known_ = true;
  for (const Mapping& mapping : *mappings) {
    if (mapping.shared) add(mapping);
  }
}

std::vector<SharedMappings::View> SharedMappings::of(pid_t pid, uint64_t device, uint64_t inode, FileRange range) {
  read(pid);
  std::vector<View> found;
  const auto it = views_.find({device, inode});
  if (it == views_.end()) return found;
  const auto& [places, longest] = it->second;
  const uint64_t first = range.start - std::min(range.start, longest);
  for (auto place = places.lower_bound({first, 0}); place != places.end() && place->first < range.end; ++place) {
    const View view{place->second, place->first, shown_.at(place->second).end - place->second};
    if (view.end() > range.start) found.push_back(view);
  }
  return found;
}

size_t SharedMappings::count(pid_t pid, uint64_t device, uint64_t inode) {
  read(pid);
  const auto it = views_.find({device, inode});
  return it == views_.end() ? 0 : it->second.places.size();
}

void SharedMappings::add(const Mapping& mapping) {
  if (!known_) return;
  remove({mapping.start, mapping.end});
  insert(mapping.start, {mapping.end, mapping.offset, {mapping.device, mapping.inode}});
}

void SharedMappings::remove(AddressRange range) {
  if (range.start >= range.end) return;
  auto it = shown_.upper_bound(range.start);
  if (it != shown_.begin()) --it;
  while (it != shown_.end() && it->first < range.end) {
    const auto [start, shown] = *it;
    if (shown.end <= range.start) {
      ++it;
      continue;
    }
    const auto views = views_.find(shown.object);
    views->second.places.erase({shown.offset, start});
    if (views->second.places.empty()) views_.erase(views);
    it = shown_.erase(it);
    if (start < range.start) insert(start, {range.start, shown.offset, shown.object});
    if (shown.end > range.end) insert(range.end, {shown.end, shown.offset + (range.end - start), shown.object});
  }
}

bool SharedMappings::any_in(AddressRange range) const {
  auto next = shown_.lower_bound(range.end);
  return range.start < range.end && next != shown_.begin() && (--next)->second.end > range.start;
}

void SharedMappings::read_again(pid_t pid, AddressRange range) {
  const auto mappings = mappings_in(pid, range);
  if (!mappings) return forget();
  remove(range);
  for (const Mapping& mapping : *mappings) {
    if (mapping.shared) add(mapping);
  }
}

void SharedMappings::look_again(pid_t pid, AddressRange range) {
  if (any_in(range)) read_again(pid, range);
}

void SharedMappings::moved(pid_t pid, AddressRange from, AddressRange to) {
  if (!any_in(from) && !any_in(to)) return;
  read_again(pid, from);
  read_again(pid, to);
}

void SharedMappings::detached(pid_t pid, Address address) {
  for (auto next = shown_.lower_bound(address); next != shown_.end();) {
    const auto [start, shown] = *next++;
    if (start - shown.offset != address) continue;
    const Views& views = views_.at(shown.object);
    read_again(pid, {address, address + views.places.rbegin()->first + views.longest});
    if (!shown_.contains(start)) return;
    next = shown_.upper_bound(start);  // that was not a segment
  }
}

void SharedMappings::forget() {
  known_ = false;
  shown_.clear();
  views_.clear();
}

void SharedMappings::insert(Address start, const Shown& shown) {
  shown_[start] = shown;
  Views& views = views_[shown.object];
  views.places.insert({shown.offset, start});
  views.longest = std::max(views.longest, shown.end - start);
}

}  // namespace redrive
