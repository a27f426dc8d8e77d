// Programs that consist of a few instructions at fixed addresses, with nothing else mapped that they could need.
#pragma once

#include <span>

#include "base/fd.h"
#include "checkpoint/address_space.h"

namespace redrive {

struct TinyProgram {
  Address start;       // of a page
  Address code_start;  // behind the program's headers, in that page
  std::span<const uint8_t> code;
  Address entry;
  bool has_writable_page;  // behind the code's page
};

// The program as an open memfd; none if the kernel gives none (errno). Its code and headers take at most
// kTinyProgramSize bytes.
Fd make_tiny_program(const char* name, const TinyProgram& program);
inline constexpr size_t kTinyProgramSize = 0x180;

}  // namespace redrive
