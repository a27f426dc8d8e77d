// Makes open files, pipes, sockets and the like anew. For a process of one thread.
//
// TCP connections among the units have addresses of the loopback. What was on its way in a socket is sent by this
// process, and SO_PASSCRED (unix(7)) says so.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "supervisor/live/live_spec.h"
#include "supervisor/live/put_message.h"

namespace redrive {

class ObjectMaker {
 public:
  // No descriptor that it makes has a number below `first`.
  ObjectMaker(const LiveSpec& spec, int first) : spec_(spec), first_(first), made_(spec.objects.size(), -1) {}

  // Makes all that are needed, with what is on its way in them and not withheld.
  Result<void> make_all();
  int descriptor(ObjectNumber object) const { return made_[object]; }
  void close_all() const;  // also what is kept for the following
  // Whether something is withheld.
  bool withholds() const { return !withheld_.empty(); }
  void close_others() const;  // all but what the following needs
  // Once: puts it where it belongs, as far as somebody can still receive it.
  Result<void> put_withheld();

 private:
  Result<void> keep(ObjectNumber object, int fd);
  Result<void> keep(ObjectNumber object, const Fd& fd);
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
  static bool is_in_use(int type, const Bytes& address);
  Result<void> bind_again(ObjectNumber object) const;
  int in_directory_of(ObjectNumber object, const std::function<int()>& act) const;
  Result<void> set_options(ObjectNumber object) const;
  void finish(ObjectNumber object);
  Result<void> fill(ObjectNumber object);
  void make_room(ObjectNumber object, int from) const;
  Result<void> give_all(ObjectNumber object, const std::vector<LiveMessage>& messages,
                        const std::function<int(const LiveMessage&)>& from);
  Put give(ObjectNumber object, const LiveMessage& message, int from);
  Put put_there(ObjectNumber object, int from, const Bytes& to, const LiveMessage& message) const;
  Error does_not_fit(ObjectNumber object, std::span<const LiveMessage> left, std::span<const LiveMessage> all,
                     const Put& put) const;

  const LiveSpec& spec_;
  const int first_;
  std::vector<int> made_;
  // What is withheld, in order.
  struct Withheld {
    ObjectNumber receiver = 0;
    int from = -1;  // a descriptor of its own
    Bytes to;       // a datagram: the address; empty: where the socket is connected to
    const LiveMessage* message = nullptr;
  };
  std::vector<Withheld> withheld_;
  std::vector<int> to_shut_;  // for writing, after that
};

}  // namespace redrive
