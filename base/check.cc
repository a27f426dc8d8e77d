#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace redrive {
namespace {
std::string (*g_describe)() = nullptr;
}

void set_check_context(std::string (*describe)()) { g_describe = describe; }

void check_failed(const char* file, int line, const char* condition) {
  const std::string context = g_describe ? g_describe() : std::string();
  std::fprintf(stderr, "redrive: bug: %s:%d: CHECK(%s) failed%s%s\n", file, line, condition,
               context.empty() ? "" : "; ", context.c_str());
  std::abort();
}

}  // namespace redrive
