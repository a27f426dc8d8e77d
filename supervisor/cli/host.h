// Whether this host can record, and if not, why.
#pragma once

#include "base/result.h"

namespace redrive {

Result<void> check_host(bool json);

}  // namespace redrive
