// Text for people: what makes it safe to print, and what counts, joins and reads it.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace redrive {

// Bytes of the recorded program, or a name from a trace, as text that cannot disturb a terminal: control characters as
// \n, \t, \x1b, \u009b.
std::string printable(std::string_view text);
std::string printable_lines(std::string_view text);  // the same, but newlines stay
std::string join_words(const std::vector<std::string>& words);
std::string counted(uint64_t count, const char* singular);  // "1 unit", "2 units"

// A number as the command line takes it: decimal digits that fit; nothing else.
std::optional<uint64_t> parse_number(std::string_view text);

inline constexpr char kNoMemory[] = "not enough memory (see ulimit -v)";
// What an exception of a library says, in a line for the user.
std::string describe(const std::exception& failure);

}  // namespace redrive
