#include "base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace redrive {
namespace {
std::string (*g_describe)() = nullptr;
}

void set_assertion_context(std::string (*describe)()) { g_describe = describe; }

void assertion_failed(const char* file, int line, const char* condition) {
  const std::string context = g_describe ? g_describe() : std::string();
  std::fprintf(stderr, "redrive: bug: %s:%d: ASSERT(%s) failed%s%s\n", file, line, condition,
               context.empty() ? "" : "; ", context.c_str());
  std::abort();
}

}  // namespace redrive
