// Connections of UNIX sockets, made again so that the kernel tells each end what it told it about the other (unix(7)):
// the number of its process, and its name. For a process of one thread that may make processes with chosen numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/result.h"

namespace redrive {

using Ends = std::pair<Fd, Fd>;

struct LocalEnd {
  int32_t process = 0;  // what SO_PEERCRED says of it; 0: not known
  Bytes name;           // a sockaddr_un; up to a family: none
};

// Does something as a process that has this number, if it is known and free, and the same descriptors. `root`: the
// directory that it takes for the root and works in; empty: as here. Returns what `act` does, 0 or an error.
int do_as(int32_t process, const std::string& root, const std::function<int()>& act);

Result<Ends> make_socket_pair(int type, int32_t process);
// The connecting end first. The name of the accepted end is that of its listener. Names are no files afterwards.
Result<Ends> connect_locally(int type, const LocalEnd& connecting, const LocalEnd& accepted);

}  // namespace redrive
