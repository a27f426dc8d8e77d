// What the dynamic loader of a process tells debuggers (link.h, r_debug): which shared objects it has loaded, by the
// names under which it has opened them. These are often links to the files that are mapped.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/page.h"

namespace redrive {

struct LoadedObject {
  Address dynamic = 0;  // of its dynamic section
  std::string name;     // empty for the program itself
};

// All or nothing.
using ReadMemory = std::function<bool(Address from, std::span<uint8_t> to)>;

// Nothing if the program has no loader, or the loader has not come so far. The memory is untrusted: at most 4096
// objects are looked at.
std::vector<LoadedObject> loaded_objects(const ReadMemory& read, std::span<const uint8_t> auxiliary_vector);

}  // namespace redrive
