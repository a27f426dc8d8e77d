#include "base/notice.h"

#include <cstdio>

namespace redrive {

void write_error(std::string_view text) noexcept { (void)std::fwrite(text.data(), 1, text.size(), stderr); }

}  // namespace redrive
