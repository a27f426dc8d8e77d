#include "base/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <new>
#include <system_error>

#include "base/utf8.h"

namespace redrive {

namespace {

struct Range {
  char32_t first, last;
};
// What changes how other characters are shown instead of being shown: the control characters of the second set (C1),
// and Unicode's format characters and separators of lines and paragraphs (the categories Cf, Zl and Zp of Unicode 15).
// All of Bidi_Control is among them. Sorted.
constexpr Range kUnseen[] = {
    {0x7f, 0x9f},       {0xad, 0xad},       {0x600, 0x605},     {0x61c, 0x61c},     {0x6dd, 0x6dd},
    {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},     {0x180e, 0x180e},   {0x200b, 0x200f},
    {0x2028, 0x202e},   {0x2060, 0x2064},   {0x2066, 0x206f},   {0xfeff, 0xfeff},   {0xfff9, 0xfffb},
    {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},
    {0xe0001, 0xe0001}, {0xe0020, 0xe007f},
};

bool is_unseen(char32_t code) {
  return std::any_of(std::begin(kUnseen), std::end(kUnseen),
                     [code](const Range& range) { return range.first <= code && code <= range.last; });
}

std::string escaped(char32_t code) {
  const auto number = static_cast<uint32_t>(code);
  return number > 0xffff ? fmt::format("\\U{:08x}", number) : fmt::format("\\u{:04x}", number);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const char c = text[0];
    const auto byte = static_cast<unsigned char>(c);
    const auto character = first_character(text);
    const size_t size = character ? character->size : 1;
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (!character || byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else if (is_unseen(character->code)) {
      out += escaped(character->code);
    } else {
      out += text.substr(0, size);
    }
    text.remove_prefix(size);
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

std::string printable_json(std::string_view json) {
  std::string out;
  while (!json.empty()) {
    const auto character = first_character(json);
    const size_t size = character ? character->size : 1;
    if (!character || !is_unseen(character->code)) {
      out += json.substr(0, size);
    } else if (const auto code = static_cast<uint32_t>(character->code); code > 0xffff) {
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd7c0 + (code >> 10), 0xdc00 + (code & 0x3ff));  // surrogates
    } else {
      out += fmt::format("\\u{:04x}", code);
    }
    json.remove_prefix(size);
  }
  return out;
}

std::string shell_quoted(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789_./+-,:@") == std::string::npos;
  if (plain) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string join_words(const std::vector<std::string>& words) {
  return printable(fmt::format("{}", fmt::join(words, " ")));
}

std::string counted(uint64_t count, const char* singular) {
  return fmt::format("{} {}{}", count, singular, count == 1 ? "" : "s");
}

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string describe(const std::exception& failure) {
  if (dynamic_cast<const std::bad_alloc*>(&failure)) return kNoMemory;
  // A thread that cannot be started is the only thing that fails without being named.
  const auto* const system = dynamic_cast<const std::system_error*>(&failure);
  const bool no_thread = system && system->code().message() == failure.what();
  return no_thread ? std::string("cannot start a thread: ") + failure.what() : failure.what();
}

}  // namespace redrive
