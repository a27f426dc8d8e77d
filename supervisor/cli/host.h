// Whether, and why not, this host can record.
#pragma once

#include "base/result.h"

namespace redrive {

Result<void> check_host(bool json);

}  // namespace redrive
