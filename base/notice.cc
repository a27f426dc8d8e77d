#include "base/notice.h"

#include <cstdio>

#include "base/text.h"

namespace redrive {

void write_error(std::string_view text) noexcept { (void)std::fwrite(text.data(), 1, text.size(), stderr); }

void write_notice(std::string_view text) { write_error("redrive: " + printable(text) + "\n"); }

}  // namespace redrive
