// trace_mutate FROM TO SEED: copies a trace so that it says something other than what was recorded, in well-formed
// records with correct checksums (trace_mutation.h).
#include <fmt/format.h>

#include <filesystem>

#include "tests/fault/trace_mutation.h"

namespace redrive {
namespace {

namespace fs = std::filesystem;

Result<void> mutate(const TraceFiles& from, const TraceFiles& to, uint64_t seed) {
  ASSIGN_OR_RETURN(TraceParts parts, take_apart(disk(), from));
  fs::create_directory(to.directory);
  for (const auto& directory : {to.events(), to.payloads()}) fs::create_directory(directory);
  // These files are never written to.
  if (fs::exists(from.files())) {
    fs::copy(from.files(), to.files(), fs::copy_options::recursive | fs::copy_options::create_hard_links);
  }
  Mutation mutation(seed);
  mutation.change(parts);
  Compressor compressor(1);
  ASSIGN_OR_RETURN(std::vector<JournalRecord> journal, write_contents(parts, disk(), to, &compressor));
  mutation.change(journal);
  return write_journal(journal, disk(), to);
}

}  // namespace
}  // namespace redrive

int main(int argc, char** argv) {
  using namespace redrive;
  if (argc != 4) {
    fmt::print(stderr, "usage: trace_mutate FROM TO SEED\n");
    return 2;
  }
  try {
    const auto done = mutate(TraceFiles{argv[1]}, TraceFiles{argv[2]}, std::stoull(argv[3]));
    if (done) return 0;
    fmt::print(stderr, "trace_mutate: {}\n", done.error().message);
    return static_cast<int>(done.error().status);
  } catch (const std::exception& failure) {
    fmt::print(stderr, "trace_mutate: {}\n", failure.what());
    return 1;
  }
}
