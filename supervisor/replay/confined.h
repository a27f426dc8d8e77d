// Where the code of other projects reads untrusted data (ELF files, unwind tables, instructions), it runs in a child
// that can do nothing else: the child has only the descriptors that it is given, a seccomp filter ends it at any call
// except those that read them and manage its memory, and its memory and CPU time are limited. Its text is all that
// comes back.
#pragma once

#include <linux/filter.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace redrive {

inline constexpr size_t kMostConfinedText = 64 << 10;  // what is longer is cut

// What the work returns; the error says how it failed: "it crashed (Segmentation fault)". `readable`: the descriptors,
// which must not be writable. The work finds the caller's memory as it is, and changes a copy of it. A caller with
// other threads: it must need no lock that one of these may hold.
Result<std::string> run_confined(std::span<const int> readable, const std::function<std::string()>& work);

// The child's filter. `output`: the only descriptor that it writes to.
Result<std::vector<sock_filter>> confined_filter(int output);

}  // namespace redrive
