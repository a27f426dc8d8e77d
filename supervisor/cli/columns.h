// Listings: tidy columns for people, JSON for programs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace redrive {

// Columns as wide as their widest cell, two spaces apart. A heading that starts with '>' is right-aligned, as are the
// cells below it.
class Columns {
 public:
  explicit Columns(std::vector<std::string> headings) : headings_(std::move(headings)) {}
  void add(std::vector<std::string> row);  // as many cells as headings; shown in the form of printable()
  std::string text(bool colour) const;
  void print() const;  // to standard output; headings bold on a terminal

 private:
  std::vector<std::string> headings_;
  std::vector<std::vector<std::string>> rows_;
};

// Whether standard output is a terminal and NO_COLOR is not set (no-color.org).
bool colour_wanted();

// Prints one line. Bytes that are not UTF-8 (names, arguments) become U+FFFD, because JSON cannot hold them. Characters
// that can disturb a terminal are written as \u escapes.
void print_json(const nlohmann::ordered_json& value);
std::string json_line(const nlohmann::ordered_json& value);

}  // namespace redrive
