// redrive catalog: makes a trace's catalog, unless the trace has it already, and says where it is.
#include "supervisor/cli/catalog.h"

#include <fmt/format.h>

#include "base/text.h"
#include "logstore/trace.h"
#include "supervisor/cli/words.h"

namespace redrive {

namespace {

constexpr CommandText kCatalogText{"catalog",
                                   "redrive catalog [TRACE]",
                                   "make a database for queries, and print its path",
                                   "Query it with sqlite3: sqlite3 \"$(redrive catalog)\" 'SELECT * FROM units'\n",
                                   {kTraceWord}};

class CatalogCommand : public CommandWith<CatalogOptions> {
 public:
  using CommandWith::CommandWith;

  void declare(Arguments& arguments) override { arguments.words(); }

  Result<void> finish(const Arguments& arguments) override {
    ASSIGN_OR_RETURN(options_.trace, only_trace(arguments));
    return {};
  }

  Result<int> run() override {
    ASSIGN_OR_RETURN(const std::string directory, find_trace(options_.trace));
    ASSIGN_OR_RETURN(const auto trace, Trace::open(directory));
    ASSIGN_OR_RETURN(const std::string path, catalog_path(*trace));
    fmt::print("{}\n", printable(path));
    return 0;
  }
};

}  // namespace

std::unique_ptr<Command> make_catalog_command() { return std::make_unique<CatalogCommand>(kCatalogText); }

}  // namespace redrive
