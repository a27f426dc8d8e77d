#include "base/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <new>
#include <system_error>

#include "base/utf8.h"

namespace redrive {

namespace {

// Whether it is a control character of the second set (C1), or changes the direction in which others are shown.
bool disturbs(char32_t code) {
  return (code >= 0x80 && code < 0xa0) || code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
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
    } else if (disturbs(character->code)) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(character->code));
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
