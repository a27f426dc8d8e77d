// ASSERT(cond): an assertion that stays on in release builds. It guards against bugs in redrive, never against input.
#pragma once

#include <string>

namespace redrive {

// Text that ASSERT failures and crashes print in addition to the condition: the thread's last event. Empty by default.
void set_assertion_context(std::string (*describe)());

[[noreturn]] void assertion_failed(const char* file, int line, const char* condition);

}  // namespace redrive

#define ASSERT(cond)                                                     \
  do {                                                                   \
    if (!(cond)) ::redrive::assertion_failed(__FILE__, __LINE__, #cond); \
  } while (0)
