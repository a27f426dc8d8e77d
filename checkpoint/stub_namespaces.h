// The namespaces in which stubs run, where the machine lets us have them (namespaces(7)): a user without privileges, an
// empty file system, no network, no System V objects, and no process but stubs. What a stub does is limited by its
// filter (stub_filter.h) already; this is what is left to code that finds a hole in that or in the kernel.
#pragma once

#include <sys/types.h>

#include "base/fd.h"
#include "base/result.h"

// Of functions that a child executes on our memory. They do not return, which sanitizers would take for calls of our
// own that have not ended.
#define REDRIVE_ON_OUR_MEMORY [[gnu::no_sanitize("address", "thread", "undefined")]]

namespace redrive {

class StubNamespaces {
 public:
  // This process's, made at the first call, by any thread. They end with it.
  static const StubNamespaces& ours();

  bool any() const { return kinds_ != 0; }
  // Why there are none, or none but those that need privileges; empty if there are all.
  const std::string& missing() const { return missing_; }

  // Spawns a child of the calling thread in them, or, as far as they are missing, without: runs `body`, on the caller's
  // memory, while the caller waits for it to execute a program or to end. Only system calls may be made there, and it
  // is REDRIVE_ON_OUR_MEMORY.
  Result<pid_t> spawn(int (*body)(void*), void* arg) const;
  static Result<pid_t> spawn_outside(int (*body)(void*), void* arg);  // in the caller's namespaces

 private:
  StubNamespaces();
  Result<void> make(int kinds);

  Fd first_;  // the process that holds them (pidfd_open(2)), which ends when we have closed `alive_`
  Fd alive_;
  int kinds_ = 0;  // CLONE_NEW...
  std::string missing_;
};

}  // namespace redrive
