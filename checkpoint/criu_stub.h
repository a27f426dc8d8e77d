// What the images say from which CRIU makes a stub, apart from its memory: threads that have executed nothing, as
// nobody in the namespaces that CRIU itself is in, without capabilities, and with a stub's filter.
#pragma once

#include <string>

#include "checkpoint/criu_images.pb.h"
#include "checkpoint/stub_filter.h"

namespace redrive::criu_stub {

inline constexpr const char* kName = "redrive-stub";
inline constexpr uint32_t kFiles = 2;  // the number of its table of descriptors

criu::inventory_entry inventory();
criu::task_kobj_ids_entry ids();
// `first`: of its process.
criu::core_entry thread(bool first);
criu::seccomp_entry filters(const StubTier& tier);
// Memory without mappings. `program`: the number of the file that the process executes. For the kernel, all that the
// program began with is in the stub's own pages.
criu::mm_entry layout(uint32_t program);
criu::file_entry file(uint32_t number, const std::string& path);

}  // namespace redrive::criu_stub
