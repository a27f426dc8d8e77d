// trace_catalog TRACE: makes the catalog again from the segments, as for a killed recorder, and prints its path.
#include <cstdio>

#include "logstore/trace.h"

int main(int argc, char** argv) {
  using namespace redrive;
  if (argc != 2) {
    std::fprintf(stderr, "usage: trace_catalog TRACE\n");
    return 2;
  }
  const auto made = [&]() -> Result<std::string> {
    ASSIGN_OR_RETURN(const auto trace, Trace::open(argv[1]));
    TRY(build_catalog(*trace));
    return catalog_path(*trace);
  }();
  if (!made) std::fprintf(stderr, "trace_catalog: %s\n", made.error().message.c_str());
  if (made) std::printf("%s\n", made.value().c_str());
  return made ? 0 : 1;
}
