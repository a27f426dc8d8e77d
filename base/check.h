// CHECK(cond): an assertion that stays on in release builds. It guards against bugs in redrive, never against input.
#pragma once

#include <string>

namespace redrive {

// Text that CHECK failures and crashes print in addition to the condition: the thread's last event. Empty by default.
void set_check_context(std::string (*describe)());

[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace redrive

#define CHECK(cond)                                                  \
  do {                                                               \
    if (!(cond)) ::redrive::check_failed(__FILE__, __LINE__, #cond); \
  } while (0)
