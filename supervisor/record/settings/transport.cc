#include "supervisor/record/settings/transport.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace redrive {
namespace {

// Open MPI: `btl` carries messages if `pml` is ob1, and an MTL is another way to choose. Debian's configuration leaves
// windows nothing but shared memory: "^ucx" gives those of MPI_Win_create messages (pt2pt), and still lets
// MPI_Win_allocate_shared, which asks for shared memory, work. Shared file pointers are in shared memory without "^sm".
// Open MPI 5 finds no way from an address to itself through netlink, which the kernel routes over lo.
// PMIx's other stores are files that ranks map, and so is the topology that a server puts into a hole of their memory.
//
// MPICH: each rank seems to be on a node of its own, so that none shares memory even for MPI_Init; UCX carries the
// messages. A rank of MPICH before 4.2 waits in MPI_Finalize for the process manager and answers no other rank
// meanwhile, so one that closes its connections later often waits for ever (github.com/pmodels/mpich/pull/6596).
constexpr LibraryVersions kOldMpich{
    "libmpich.so.12", {"libmpich.so.12.0.", "libmpich.so.12.1.", "libmpich.so.12.2.", "libmpich.so.12.3."}};
constexpr TransportVariable kVariables[] = {
    {"Open MPI", "OMPI_MCA_btl", "tcp,self", "libmpi.so"},
    {"Open MPI", "OMPI_MCA_pml", "ob1", "libmpi.so", "OMPI_MCA_mtl"},
    {"Open MPI", "OMPI_MCA_osc", "^ucx", "libmpi.so"},
    {"Open MPI", "OMPI_MCA_sharedfp", "^sm", "libmpi.so"},
    {"Open MPI", "OMPI_MCA_reachable", "weighted", "libmpi.so"},
    {"PMIx", "PMIX_MCA_gds", "hash", "libpmix.so"},
    {"PMIx", "PMIX_MCA_pmix_hwloc_hole_kind", "none", "libpmix.so"},
    {"MPICH", "MPIR_CVAR_NOLOCAL", "1", "libmpich.so", nullptr, &kOldMpich},
    {"UCX", "UCX_TLS", "tcp,self", "libucp.so", nullptr, &kOldMpich},
};

// Where libraries are found without an option.
constexpr const char* kLibraryPath = "/usr/local/lib:/usr/lib/x86_64-linux-gnu:/usr/lib64:/usr/lib";

// The name that --mca has for the parameter for which this variable stands; empty if there is none.
std::string_view parameter_of(std::string_view variable) {
  constexpr std::string_view kMark = "_MCA_";
  const size_t mark = variable.find(kMark);
  return mark == std::string_view::npos ? std::string_view() : variable.substr(mark + kMark.size());
}

bool is_mca_option(std::string_view word) {
  return word.starts_with("-") && word.ends_with("mca") && word.find_first_of("=/") == std::string_view::npos;
}

bool is_named(std::string_view variable, const std::vector<std::string>& command) {
  const std::string_view parameter = parameter_of(variable);
  for (size_t i = 0; i < command.size(); i++) {
    const std::string_view word = command[i];
    if (word.starts_with(variable) && (word.size() == variable.size() || word[variable.size()] == '=')) return true;
    if (!parameter.empty() && word == parameter && i > 0 && is_mca_option(command[i - 1])) return true;
  }
  return false;
}

bool is_installed(const LibraryVersions& versions, const std::string& path) {
  const std::string file = library_file(versions.soname, path);
  return std::any_of(versions.files.begin(), versions.files.end(),
                     [&](const char* name) { return file.starts_with(name); });
}

}  // namespace

std::string library_file(const std::string& soname, const std::string& path) {
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string directory = path.substr(begin, end - begin);
    begin = end + 1;
    std::error_code error;
    const auto file = std::filesystem::canonical(directory + "/" + soname, error);
    if (!directory.empty() && !error) return file.filename();
  }
  return {};
}

std::span<const TransportVariable> transport_variables() { return kVariables; }

bool is_chosen(const TransportVariable& variable, const std::vector<std::string>& command) {
  const auto chosen = [&](const char* name) { return name && (std::getenv(name) || is_named(name, command)); };
  return chosen(variable.name) || chosen(variable.chosen);
}

std::vector<const TransportVariable*> ask_for_sockets(const std::vector<std::string>& command) {
  const char* const own = std::getenv("LD_LIBRARY_PATH");
  const std::string path = (own ? std::string(own) + ":" : "") + kLibraryPath;
  std::vector<const TransportVariable*> asked;
  for (const TransportVariable& variable : kVariables) {
    if (is_chosen(variable, command) || (variable.unless && is_installed(*variable.unless, path))) continue;
    setenv(variable.name, variable.value, 0);
    asked.push_back(&variable);
  }
  return asked;
}

}  // namespace redrive
