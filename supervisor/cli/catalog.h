// redrive catalog: makes a trace's catalog, unless the trace has it already, and says where it is.
#pragma once

#include <memory>
#include <string>

#include "supervisor/cli/command.h"

namespace redrive {

struct CatalogOptions {
  std::string trace;
};

std::unique_ptr<Command> make_catalog_command();

}  // namespace redrive
