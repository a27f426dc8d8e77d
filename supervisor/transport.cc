#include "supervisor/transport.h"

#include <cstdlib>
#include <string_view>

namespace redrive {
namespace {

// Open MPI: `btl` carries messages if `pml` is ob1, and an MTL is another way to choose. Debian's configuration leaves
// windows nothing but shared memory: "^ucx" gives those of MPI_Win_create messages (pt2pt), and still lets
// MPI_Win_allocate_shared, which asks for shared memory, work. Shared file pointers are in shared memory without "^sm".
// PMIx's other stores are files that ranks map.
//
// MPICH is not here: over UCX's TCP alone (UCX_TLS=tcp,self), its ranks often wait for each other for ever in
// MPI_Finalize, without a recorder as well (4.0.2 with UCX 1.13).
constexpr TransportVariable kVariables[] = {
    {"Open MPI", "OMPI_MCA_btl", "tcp,self", "libmpi.so"},
    {"Open MPI", "OMPI_MCA_pml", "ob1", "libmpi.so", "OMPI_MCA_mtl"},
    {"Open MPI", "OMPI_MCA_osc", "^ucx", "libmpi.so"},
    {"Open MPI", "OMPI_MCA_sharedfp", "^sm", "libmpi.so"},
    {"PMIx", "PMIX_MCA_gds", "hash", "libpmix.so"},
};

// The parameter's own name as --mca has it, of the variable that stands for it; empty if it is none.
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

}  // namespace

std::span<const TransportVariable> transport_variables() { return kVariables; }

bool is_chosen(const TransportVariable& variable, const std::vector<std::string>& command) {
  const auto chosen = [&](const char* name) { return name && (std::getenv(name) || is_named(name, command)); };
  return chosen(variable.name) || chosen(variable.chosen);
}

std::vector<const TransportVariable*> ask_for_sockets(const std::vector<std::string>& command) {
  std::vector<const TransportVariable*> asked;
  for (const TransportVariable& variable : kVariables) {
    if (is_chosen(variable, command)) continue;
    setenv(variable.name, variable.value, 0);
    asked.push_back(&variable);
  }
  return asked;
}

}  // namespace redrive
