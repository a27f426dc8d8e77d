// Text for people: making it safe to print, and counting, joining and parsing it.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace redrive {

// Bytes of the recorded program, or a name from a trace, as text that cannot disturb a terminal: control characters
// become \n, \t, \x1b, \u009b, and so do those that only change how others are shown (\u202e) and bytes that are no
// UTF-8.
std::string printable(std::string_view text);
std::string printable_lines(std::string_view text);  // the same, but newlines stay
std::string printable_json(std::string_view json);   // JSON with the same value, in which no such character stands
std::string shell_quoted(const std::string& word);   // as one word for a shell
std::string join_words(const std::vector<std::string>& words);
std::string counted(uint64_t count, const char* singular);  // "1 unit", "2 units"

// A number as the command line takes it: decimal digits that fit into the type, and nothing else.
std::optional<uint64_t> parse_number(std::string_view text);

inline constexpr char kNoMemory[] = "not enough memory (see ulimit -v)";
// The message of a library's exception, as one line for the user.
std::string describe(const std::exception& failure);

}  // namespace redrive
