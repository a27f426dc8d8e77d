// Copies what there is of a trace with volumes, which may still be recorded, into a trace of its own.
#pragma once

#include <string>

#include "base/result.h"
#include "logstore/storage.h"

namespace redrive {

// Makes the directory `to`, which must not exist. Files are shared by hard links where the file system allows that, but
// not those of the last volume, to which something may be added later. `complete_only`: leaves out volumes that their
// recorder has not finished. An error leaves nothing behind.
Result<void> copy_window(const std::string& from, const std::string& to, bool complete_only, Storage& storage = disk());

}  // namespace redrive
