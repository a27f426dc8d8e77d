// Where the files of a trace are below its directory.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "base/text.h"
#include "logstore/event.h"

namespace redrive {

struct TraceFiles {
  std::string directory;

  std::string at(const std::string& name) const { return directory + "/" + name; }
  std::string journal() const { return at("journal"); }
  // A trace of several volumes has each of them in a directory of this one.
  std::string volumes() const { return at("volumes"); }
  std::string volume(uint64_t number) const { return fmt::format("{}/{}", volumes(), number); }
  std::string pages() const { return at("pages"); }
  std::string catalog() const { return at("catalog.sqlite"); }
  std::string certificate() const { return at("certificate"); }
  // Exists while a process adds to the trace, or after it was killed while doing so.
  std::string preparing() const { return at("preparing"); }
  std::string payloads() const { return at("payloads"); }
  std::string payloads(UnitId unit) const { return fmt::format("{}/{}.seg", payloads(), unit); }
  std::string events() const { return at("events"); }
  std::string images() const { return at(images_name()); }
  std::string files() const { return at("files"); }
  std::string copy(const std::string& name) const { return files() + "/" + name; }
  std::string segment(UnitId unit) const { return at(segment_name(unit)); }
  // Up to format 3 each image had a file in this directory.
  std::string image_directory() const { return at("images"); }
  std::string image(UnitId unit, IntervalIndex interval) const {
    return fmt::format("{}/{}-{}.img", image_directory(), unit, interval);
  }

  static std::string images_name() { return "images.seg"; }
  static std::string pages_name() { return "pages"; }
  static std::string segment_name(UnitId unit) { return fmt::format("events/{}.seg", unit); }
  // Stands for short-lived units, which share a segment.
  static constexpr UnitId kShortUnits = 0;
  static std::optional<UnitId> unit_of_segment(const std::string& name) {
    constexpr size_t kPrefix = sizeof("events/") - 1;
    UnitId unit = 0;
    if (name.size() > kPrefix) std::from_chars(name.data() + kPrefix, name.data() + name.size(), unit);
    return unit != kShortUnits && name == segment_name(unit) ? std::optional(unit) : std::nullopt;
  }
};

// The directories in that of a trace, or of a volume.
inline constexpr const char* kTraceDirectories[] = {"events", "files", "images", "payloads", "volumes"};
inline bool is_directory_of_trace(std::string_view name) {
  return std::find(std::begin(kTraceDirectories), std::end(kTraceDirectories), name) != std::end(kTraceDirectories);
}

inline bool is_volume(const std::filesystem::path& directory) {
  return directory.parent_path().filename() == "volumes" && parse_number(directory.filename().string());
}

// The directory of a trace, as its user has named it. Storage follows no link in places that belong to a trace: one
// that only looks like that, as a link `files` to a trace does, is followed here.
inline std::string named_directory(const std::string& directory) {
  const std::filesystem::path named = (std::filesystem::path(directory) / "").parent_path();
  if (!is_directory_of_trace(named.filename().string()) && !is_volume(named)) return directory;
  std::error_code failure;
  const std::filesystem::path found = std::filesystem::canonical(named, failure);
  return failure ? directory : found.string();
}

// The directory of the trace, or of the volume, in which a file lies.
inline std::string directory_of(const std::filesystem::path& file) {
  const std::filesystem::path above = file.parent_path();
  return is_directory_of_trace(above.filename().string()) ? above.parent_path() : above;
}

// The suffix of a trace's directory while it is being removed. Such directories are not listed; another `rm` of the
// trace continues the removal.
inline constexpr const char* kRemoving = ".removing";

// The name of a file until it is published. Such files that a kill has left behind mean nothing.
inline std::string temporary(const std::string& path) { return path + ".tmp"; }

}  // namespace redrive
