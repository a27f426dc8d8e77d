// The namespaces in which stubs run, as far as the machine allows them (namespaces(7)): a user without privileges, an
// empty file system, no network, no System V objects, and no other processes than stubs. The filter (stub_filter.h)
// already limits what a stub does; the namespaces limit code that finds a hole in the filter or in the kernel.
#pragma once

#include <sys/types.h>

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

  bool any() const { return kinds_ != 0; }
  // Why there are no namespaces, or only those that need no privileges; empty if all are there.
  const std::string& missing() const { return missing_; }

  // Spawns a child of the calling thread in the namespaces, as far as they exist. The child runs `body`, in the
  // caller's memory, while the caller waits until it executes a program or ends. `body` may only make system calls, and
  // must be REDRIVE_ON_OUR_MEMORY.
  Result<pid_t> spawn(int (*body)(void*), void* arg) const;
  static Result<pid_t> spawn_outside(int (*body)(void*), void* arg);  // in the caller's namespaces

 private:
  StubNamespaces();
  Result<void> make(int kinds);

  Fd first_;  // the process that holds them (pidfd_open(2)); it ends when we close `alive_`
  Fd alive_;
  int kinds_ = 0;  // CLONE_NEW...
  std::string missing_;
};

}  // namespace redrive
