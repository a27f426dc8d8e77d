// The code that a process has mapped from a file.
#pragma once

#include "base/remote.h"
#include "checkpoint/unit_state.h"
#include "interceptors/patch_window.h"
#include "supervisor/tier/trampoline.h"

namespace redrive {

// The code as it is now, whatever is written into it later. It is read from the file, except for pages that the process
// has changed: reading a process's memory needs as much memory here.
CodeSegment mapped_code(const Memory& memory, const Mapping& mapping);
// Code that is mapped at `start`. The memory must outlive it.
CodeSegment::Mapped mapped_at(const Memory& memory, Address start);
// The window of such an instruction, at this offset of code that is mapped at `start`. `front`: of cpuid, as in
// CodeSegment::window.
std::optional<PatchWindow> window_of(SiteKind kind, const CodeSegment& code, uint64_t at,
                                     const std::vector<uint8_t>& front, const Memory& memory, Address start);

}  // namespace redrive
