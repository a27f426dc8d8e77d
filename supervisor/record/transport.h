// How the processes of known runtimes are asked to talk by sockets instead of shared memory, in the runtimes' own
// environment variables. Processes that share memory become one unit, whose threads run one at a time and whose
// messages nobody sees.
//
// One table says it all; redrive(1), TRANSPORTS, is held equal to it by a test. A variable that is not known to a
// program does nothing to it but stand in its environment.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace redrive {

enum class Transport {
  sockets,  // what the user has not chosen is set
  as_is,    // nothing is set
};

struct TransportVariable {
  const char* runtime;
  const char* name;
  const char* value;
  const char* library;                       // that programs map which use it: how its file's name begins
  const char* chosen = nullptr;              // another variable by which users choose the same
  std::span<const char* const> unless = {};  // versions of a library, by their files' names, that do not bear it
};
std::span<const TransportVariable> transport_variables();

// Whether the user has chosen what the variable is for: in the environment, or in words of the command, as options of
// mpirun and mpiexec name it (--mca btl, -x NAME=..., -genv NAME ...).
bool is_chosen(const TransportVariable& variable, const std::vector<std::string>& command);

// Whether a directory of the path holds a file whose name begins with one of these.
bool has_library(std::span<const char* const> names, const std::string& path);

// Sets what is not chosen, and what the installed libraries bear, in this process's environment, which the command
// inherits. Returns what was set.
std::vector<const TransportVariable*> ask_for_sockets(const std::vector<std::string>& command);

}  // namespace redrive
