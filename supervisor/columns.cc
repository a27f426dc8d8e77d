#include "supervisor/columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace redrive {

namespace {

// Columns a string takes on a terminal, taking every character for one wide.
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
  CHECK(row.size() == headings_.size());
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
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void print_json(const nlohmann::ordered_json& value) { fmt::print("{}\n", json_line(value)); }

std::string printable(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool second_set = byte == 0xc2 && next >= 0x80 && next < 0xa0;  // U+0080 to U+009F, in UTF-8
    if (second_set) {
      out += fmt::format("\\u{:04x}", next);
      ++i;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

std::string printable_lines(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out += printable(text.substr(at, end - at));
    if (end < text.size()) out += '\n';
    at = end + 1;
  }
  return out;
}

std::string join_words(const std::vector<std::string>& words) {
  return printable(fmt::format("{}", fmt::join(words, " ")));
}

std::string counted(uint64_t count, const char* singular) {
  return fmt::format("{} {}{}", count, singular, count == 1 ? "" : "s");
}

}  // namespace redrive
