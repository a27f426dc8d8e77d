// The namespaces in which stubs run, as far as the machine allows them (namespaces(7)): a user to which no number maps,
// an empty file system, no network, no System V objects, and no other processes than stubs. The filter (stub_filter.h)
// already limits what a stub does; the namespaces limit code that finds a hole in the filter or in the kernel.
//
// CRIU (criu.h) makes processes where it runs itself, and needs privileges and the machine's files for that. So the
// namespaces in which it restores stubs have both, and are of the machine's user, because CRIU cannot run in a user
// namespace that is not the first; the stubs are left neither when they are made (criu_restore.h).
#pragma once

#include <sys/types.h>

#include <initializer_list>
#include <string>

#include "base/fd.h"
#include "base/result.h"

// For functions that a child executes in our memory. They do not return, which sanitizers would take for unfinished
// calls of our own.
#define REDRIVE_ON_OUR_MEMORY [[gnu::no_sanitize("address", "thread", "undefined")]]

namespace redrive {

class StubNamespaces {
 public:
  // The namespaces of this process. The first call, by any thread, makes them; they end with the process.
  static const StubNamespaces& ours();
  // Those in which CRIU restores stubs.
  static const StubNamespaces& of_criu();

  bool any() const { return kinds_ != 0; }
  // Why there are no namespaces, or only those that need no privileges; empty if all are there.
  const std::string& missing() const { return missing_; }

  // Spawns a child of the calling thread in the namespaces, as far as they exist. The child runs `body`, in the
  // caller's memory, while the caller waits until it executes a program or ends. `body` may only make system calls, and
  // must be REDRIVE_ON_OUR_MEMORY.
  Result<pid_t> spawn(int (*body)(void*), void* arg) const;
  static Result<pid_t> spawn_outside(int (*body)(void*), void* arg);  // in the caller's namespaces

  // The process that holds them: the first of the PID namespace.
  pid_t holder() const { return holder_; }
  // In the namespaces of CRIU: a directory that nobody else sees and that ends with them, and an empty one in it.
  static constexpr const char* kPlace = "/proc/fs";
  static constexpr const char* kEmpty = "/proc/fs/empty";

 private:
  // Arranges the files of the new namespaces; false, with errno, if that is not possible.
  using Arrange = bool();
  StubNamespaces(std::initializer_list<int> kinds, Arrange& arrange);
  Result<void> make(int kinds, Arrange& arrange);

  Fd first_;  // the process that holds them (pidfd_open(2)); it ends when we close `alive_`
  Fd alive_;
  pid_t holder_ = -1;
  int kinds_ = 0;  // CLONE_NEW...
  std::string missing_;
};

}  // namespace redrive
