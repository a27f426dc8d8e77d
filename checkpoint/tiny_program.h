// Programs that consist of a few instructions at fixed addresses and have nothing else mapped.
#pragma once

#include <span>

#include "base/fd.h"
#include "base/result.h"
#include "checkpoint/address_space.h"

namespace redrive {

struct TinyProgram {
  Address start;       // of its page
  Address code_start;  // in that page, after the program's headers
  std::span<const uint8_t> code;
  Address entry;
  bool has_writable_page;  // right after the code's page
};

// The program as an open memfd. Its code and headers take at most kTinyProgramSize bytes.
Result<Fd> make_tiny_program(const char* name, const TinyProgram& program);
inline constexpr size_t kTinyProgramSize = 0x180;

}  // namespace redrive
