// What the recording tells of the content of files that its units have written.
#pragma once

#include <string>

#include "base/result.h"
#include "logstore/trace.h"
#include "supervisor/live/kernel_objects.h"
#include "supervisor/live/wanted_inputs.h"

namespace redrive {

// Whether the file still holds what it held at some place, as far as its description tells, and all that it holds
// beyond was added by the recording after that, through the same description, and is there as it was written. Others
// may have written too, and the file may have changed since, so the file is compared with the hashes of these writes.
// Events hold no hash of the bytes alone that writev(2), sendfile(2) and the like have written: then the answer is no.
// `there`, `later`: the description at that place and at the recording's end.
Result<bool> was_added_later(const Trace& trace, const std::string& path, const OpenObject& there,
                             const OpenObject& later);

// Whether the calls that have made the content of a file tell what that is. What others have done to it, and what was
// written through memory (mmap(2)), is not asked.
bool has_known_content(const OpenObject& object);
// The content, from what these calls have read; none if that is not known.
std::optional<Bytes> content_of(const OpenObject& object, const WantedInputs& inputs);

}  // namespace redrive
