// How the processes of known runtimes are asked to communicate through sockets instead of shared memory, with the
// runtimes' own environment variables. Processes that share memory become one unit, whose threads run one at a time and
// whose messages are not seen.
//
// One table holds all of this; a test keeps redrive(1), TRANSPORTS, equal to it. A variable that a program does not
// know has no effect on it apart from being in its environment.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

namespace redrive {

enum class Transport {
  sockets,  // what the user has not chosen is set
  as_is,    // nothing is set
};

struct LibraryVersions {
  const char* soname;
  std::array<const char*, 4> files;  // how the names begin of the files that the soname is a link to
};

struct TransportVariable {
  const char* runtime;
  const char* name;
  const char* value;
  const char* library;                      // of the programs that use it: how its file's name begins
  const char* chosen = nullptr;             // another variable by which users choose the same
  const LibraryVersions* unless = nullptr;  // that cannot take it
};
std::span<const TransportVariable> transport_variables();

// Whether the user has chosen what the variable is for: in the environment, or in words of the command, as options of
// mpirun and mpiexec name it (--mca btl, -x NAME=..., -genv NAME ...).
bool is_chosen(const TransportVariable& variable, const std::vector<std::string>& command);

// The name of the library's file that a program finds with this path of directories; empty if it finds none.
std::string library_file(const std::string& soname, const std::string& path);

// Sets the variables that are not chosen, and that the installed libraries can take, in this process's environment,
// which the command inherits. Returns what was set.
std::vector<const TransportVariable*> ask_for_sockets(const std::vector<std::string>& command);

}  // namespace redrive
