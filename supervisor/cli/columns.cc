#include "supervisor/cli/columns.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/assert.h"
#include "base/text.h"

namespace redrive {

namespace {

// How many columns a string takes on a terminal, if every character is one column wide.
size_t width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string pad(const std::string& text, size_t to, bool right, bool last) {
  const std::string space(to - std::min(to, width(text)), ' ');
  if (right) return space + text;
  return last ? text : text + space;
}

}  // namespace

void Columns::add(std::vector<std::string> row) {
  ASSERT(row.size() == headings_.size());
  for (std::string& cell : row) cell = printable(cell);
  rows_.push_back(std::move(row));
}

std::string Columns::text(bool colour) const {
  const size_t count = headings_.size();
  std::vector<std::string> headings = headings_;
  std::vector<bool> right(count);
  std::vector<size_t> widths(count);
  for (size_t i = 0; i < count; ++i) {
    right[i] = headings[i].starts_with('>');
    if (right[i]) headings[i].erase(0, 1);
    widths[i] = width(headings[i]);
    for (const auto& row : rows_) widths[i] = std::max(widths[i], width(row[i]));
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) out += "  ";
      out += pad(cells[i], widths[i], right[i], i + 1 == count);
    }
    return out;
  };
  std::string out = colour ? "\033[1m" + line(headings) + "\033[0m\n" : line(headings) + "\n";
  for (const auto& row : rows_) out += line(row) + "\n";
  return out;
}

void Columns::print() const { fmt::print("{}", text(colour_wanted())); }

bool colour_wanted() {
  const char* no_color = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) && (no_color == nullptr || *no_color == '\0');
}

std::string json_line(const nlohmann::ordered_json& value) {
  return printable_json(value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void print_json(const nlohmann::ordered_json& value) { fmt::print("{}\n", json_line(value)); }

}  // namespace redrive
