// Characters in UTF-8.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace redrive {

struct Character {
  char32_t code = 0;
  size_t size = 0;  // in bytes
};
// The character that the text, which is not empty, begins with; none if it does not begin with one.
std::optional<Character> first_character(std::string_view text);

}  // namespace redrive
