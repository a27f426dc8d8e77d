// Text on standard error. What cannot be written there is lost: nothing depends on it, so nothing fails for it.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace redrive {

// As it is. Thread-safe; one call is not mixed with another.
void write_error(std::string_view text) noexcept;

void write_notice(std::string_view text);
// A line for the user, from redrive. It is made printable().
template <typename... Args>
void notice(fmt::format_string<Args...> text, Args&&... args) {
  write_notice(fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace redrive
