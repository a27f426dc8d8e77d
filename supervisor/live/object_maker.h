// Makes open files, pipes, sockets and the like anew. For a process of one thread.
#pragma once

#include <vector>

#include "base/result.h"
#include "supervisor/live/live_spec.h"

namespace redrive {

class ObjectMaker {
 public:
  // No descriptor that it makes has a number below `first`.
  ObjectMaker(const LiveSpec& spec, int first) : spec_(spec), first_(first), made_(spec.objects.size(), -1) {}

  // Makes all that are needed, with what is on its way in them.
  Result<void> make_all();
  int descriptor(ObjectNumber object) const { return made_[object]; }
  void close_all() const;

 private:
  Result<void> keep(ObjectNumber object, int fd);
  Result<void> make(ObjectNumber object);
  Result<void> make_file(ObjectNumber object);
  Result<void> make_fifo(ObjectNumber object);
  Result<void> make_terminal(ObjectNumber object);
  Result<void> make_pipe(ObjectNumber object);
  Result<void> make_socket(ObjectNumber object);
  Result<void> make_connection(ObjectNumber a, ObjectNumber b);
  Result<void> make_gone(ObjectNumber object);
  Result<void> make_special(ObjectNumber object);
  Result<void> listen_again(ObjectNumber object);
  Result<void> set_options(ObjectNumber object) const;
  Result<void> fill(ObjectNumber object) const;

  const LiveSpec& spec_;
  const int first_;
  std::vector<int> made_;
};

}  // namespace redrive
