#include "supervisor/live/object_maker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <utility>

#include "base/notice.h"
#include "base/page.h"
#include "supervisor/live/local_connection.h"

namespace redrive {
namespace {

using Kind = OpenObject::Kind;

const sockaddr* address_of(const Bytes& bytes) { return reinterpret_cast<const sockaddr*>(bytes.data()); }
socklen_t size_of(const Bytes& bytes) { return static_cast<socklen_t>(bytes.size()); }

bool is_internet(const LiveObject& object) { return object.domain == AF_INET || object.domain == AF_INET6; }

std::string port_of(const Bytes& address) {
  sockaddr_in found{};
  if (address.size() < sizeof found) return "its address";
  std::memcpy(&found, address.data(), sizeof found);
  return fmt::format("port {}", ntohs(found.sin_port));
}

// The loopback address of a family, with a port that the kernel chooses.
Bytes loopback(int domain) {
  if (domain == AF_INET6) {
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_addr = IN6ADDR_LOOPBACK_INIT;
    return {reinterpret_cast<uint8_t*>(&any), reinterpret_cast<uint8_t*>(&any) + sizeof any};
  }
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return {reinterpret_cast<uint8_t*>(&any), reinterpret_cast<uint8_t*>(&any) + sizeof any};
}

// Connections that have ended keep a port for a minute (TIME_WAIT), such as those of the recording; a socket that is to
// listen waits for them, unless somebody listens there. Returns 0, or the error.
int bind_when_free(int fd, const Bytes& address, bool listens) {
  constexpr int kTries = 140;
  constexpr useconds_t kPause_us = 500'000;
  for (int tries = 0;; ++tries) {
    if (::bind(fd, address_of(address), size_of(address)) == 0) return 0;
    const int err = errno;
    if (err != EADDRINUSE || !listens || family_of(address) == AF_UNIX || tries == kTries) return err;
    const int asks = ::socket(family_of(address), SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool somebody = connect(asks, address_of(address), size_of(address)) == 0;
    ::close(asks);
    if (somebody) return err;
    if (tries == 0) notice("waiting for {}: connections that have just ended keep it for a minute", port_of(address));
    usleep(kPause_us);
  }
}

// A connection over the loopback: the two ends, the connecting one first.
Result<Ends> connect_internet(int domain) {
  const auto socket = [&] { return Fd(::socket(domain, SOCK_STREAM | SOCK_CLOEXEC, 0)); };
  const Fd listener = socket();
  Fd end = socket();
  const Bytes any = loopback(domain);
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  const bool connected = ::bind(listener.get(), address_of(any), size_of(any)) == 0 && listen(listener.get(), 1) == 0 &&
                         getsockname(listener.get(), reinterpret_cast<sockaddr*>(&name), &size) == 0 &&
                         connect(end.get(), reinterpret_cast<const sockaddr*>(&name), size) == 0;
  Fd other(connected ? accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC) : -1);
  if (!other) return errno_error("cannot connect two processes over the loopback");
  return Ends(std::move(end), std::move(other));
}

// A connection or a pair of UNIX sockets, in this order.
Result<Ends> connect_again(const LiveObject& a, const LiveObject& b) {
  if (!a.connected) return make_socket_pair(a.type, a.peer_id);
  const LiveObject &connecting = a.end_number == 0 ? a : b, &accepted = a.end_number == 0 ? b : a;
  const Bytes& own = connecting.bound.empty() ? connecting.own_address : connecting.bound;
  const Bytes& listeners = accepted.own_address.empty() ? connecting.peer_address : accepted.own_address;
  ASSIGN_OR_RETURN(auto ends, connect_locally(a.type, {connecting.peer_id, own}, {accepted.peer_id, listeners}));
  if (&connecting == &b) std::swap(ends.first, ends.second);
  return ends;
}

// Whether it receives what anybody sends to its address.
bool is_open_to_all(const LiveObject& object) {
  return object.kind == Kind::socket && object.type != SOCK_STREAM && !object.peer;
}

// Where the file system has no files without names, or the directory has gone, it is in memory.
int open_nameless(const std::string& directory, int flags) {
  constexpr mode_t kOwn = 0600;
  const int fd = ::open(directory.c_str(), flags | O_TMPFILE | O_CLOEXEC, kOwn);
  if (fd >= 0) return fd;
  const int memory = memfd_create("removed", MFD_CLOEXEC);
  fcntl(memory, F_SETFL, flags);
  return memory;
}

}  // namespace

Result<void> ObjectMaker::keep(ObjectNumber object, int fd) {
  if (fd < 0) return errno_error("cannot make an object of the recording again");
  return keep(object, Fd(fd));
}

Result<void> ObjectMaker::keep(ObjectNumber object, const Fd& fd) {
  made_[object] = fcntl(fd.get(), F_DUPFD_CLOEXEC, first_);
  if (made_[object] < 0) return errno_error("cannot keep an object of the recording");
  return {};
}

void ObjectMaker::close_others() const {
  for (const int fd : made_) {
    if (fd >= 0) ::close(fd);
  }
}

void ObjectMaker::close_all() const {
  close_others();
  for (const Withheld& each : withheld_) ::close(each.from);
  for (const int fd : to_shut_) ::close(fd);
}

Result<void> ObjectMaker::make_all() {
  const auto& objects = spec_.objects;
  for (ObjectNumber number = 0; number < objects.size(); ++number) {
    if (objects[number].needed && made_[number] < 0 && !objects[number].backlog) TRY(make(number));
  }
  for (ObjectNumber number = 0; number < objects.size(); ++number) {
    if (objects[number].needed && made_[number] < 0) TRY(listen_again(number));
  }
  for (ObjectNumber number = 0; number < objects.size(); ++number) {
    const LiveObject& object = objects[number];
    if (!object.needed || !is_open_to_all(object) || object.peer_address.empty()) continue;
    static_cast<void>(connect(made_[number], address_of(object.peer_address), size_of(object.peer_address)));
  }
  for (ObjectNumber number = 0; number < objects.size(); ++number) {
    if (objects[number].needed) TRY(fill(number));
  }
  for (ObjectNumber number = 0; number < objects.size(); ++number) {
    if (objects[number].needed && objects[number].kind != Kind::inherited) finish(number);
  }
  return {};
}

// What must not be so while it is filled.
void ObjectMaker::finish(ObjectNumber number) {
  const LiveObject& object = spec_.objects[number];
  const int flags = fcntl(made_[number], F_GETFL);
  const int wanted = object.nonblocking ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
  if (wanted != flags) fcntl(made_[number], F_SETFL, wanted);
  if (object.capacity) fcntl(made_[number], F_SETPIPE_SZ, static_cast<int>(object.capacity));
  if (object.kind != Kind::socket || !(object.connected || object.peer)) return;
  if (object.shut[0]) shutdown(made_[number], SHUT_RD);
  if (!object.shut[1]) return;
  if (holds_back(object.peer ? spec_.objects[*object.peer] : object)) {
    to_shut_.push_back(fcntl(made_[number], F_DUPFD_CLOEXEC, first_));
  } else {
    shutdown(made_[number], SHUT_WR);
  }
}

Result<void> ObjectMaker::make(ObjectNumber number) {
  const LiveObject& object = spec_.objects[number];
  switch (object.kind) {
    case Kind::inherited:
      return keep(number, dup(object.number));
    case Kind::file:
      return make_file(number);
    case Kind::pipe:
      return make_pipe(number);
    case Kind::socket:
      return make_socket(number);
    case Kind::eventfd:
    case Kind::epoll:
    case Kind::timerfd:
    case Kind::signalfd:
      return make_special(number);
    case Kind::memfd:
    case Kind::other:
      break;
  }
  return Error{"an object cannot be made again"};
}

Result<void> ObjectMaker::make_file(ObjectNumber number) {
  const LiveObject& object = spec_.objects[number];
  if (object.fifo) return make_fifo(number);
  if (object.terminal || object.terminal_of) return make_terminal(number);
  constexpr int kOnce = O_TRUNC | O_EXCL | O_CREAT;
  const int flags = static_cast<int>(object.flags) & ~kOnce;
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  int fd = object.nameless ? open_nameless(object.path, flags) : ::open(object.path.c_str(), flags | O_CLOEXEC);
  constexpr mode_t kMode = 0666;
  if (fd < 0 && errno == ENOENT && writes) {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(object.path).parent_path(), ignored);
    errno = ENOENT;
  }
  if (fd < 0 && errno == ENOENT && writes) fd = ::open(object.path.c_str(), flags | O_CREAT | O_CLOEXEC, kMode);
  if (fd < 0) return errno_error("cannot open " + object.path);
  if (!object.content.empty() && put_bytes(fd, {}, object.content).error)
    return errno_error("cannot write " + object.path);
  if (object.lock && flock(fd, object.lock | LOCK_NB) != 0) return errno_error("cannot lock " + object.path + " again");
  if (object.offset) lseek(fd, static_cast<off_t>(*object.offset), SEEK_SET);
  return keep(number, fd);
}

// One that nothing has gone through. It is made again if it was removed since.
Result<void> ObjectMaker::make_fifo(ObjectNumber number) {
  const LiveObject& object = spec_.objects[number];
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(object.path).parent_path(), ignored);
  constexpr mode_t kMode = 0600;
  if (mkfifo(object.path.c_str(), kMode) != 0 && errno != EEXIST) return errno_error("cannot make " + object.path);
  const int both = ::open(object.path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);  // so that no open waits for another
  const int fd = ::open(object.path.c_str(), (static_cast<int>(object.flags) & O_ACCMODE) | O_NONBLOCK | O_CLOEXEC);
  const auto kept = keep(number, fd);
  ::close(both);
  return kept;
}

// A pseudoterminal has another number than it had.
Result<void> ObjectMaker::make_terminal(ObjectNumber number) {
  const LiveObject& object = spec_.objects[number];
  const int flags = (static_cast<int>(object.flags) & O_ACCMODE) | O_NOCTTY | O_CLOEXEC;
  if (object.terminal) {
    TRY(keep(number, ::open("/dev/ptmx", flags)));
    unlockpt(made_[number]);
  } else {
    if (made_[*object.terminal_of] < 0) TRY(make(*object.terminal_of));
    TRY(keep(number, ioctl(made_[*object.terminal_of], TIOCGPTPEER, flags)));
  }
  for (const Bytes& settings : object.terminal_settings) {
    if (ioctl(made_[number], TCSETS, settings.data()) != 0) return errno_error("cannot set a terminal up again");
  }
  return {};
}

Result<void> ObjectMaker::make_pipe(ObjectNumber number) {
  const LiveObject& object = spec_.objects[number];
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno_error("cannot make a pipe");
  const Fd own(ends[object.end_number]), others(ends[1 - object.end_number]);
  TRY(keep(number, own));
  TRY(keep(*object.peer, others));
  for (const ObjectNumber end : {number, *object.peer}) {
    if (spec_.objects[end].flags & O_DIRECT) fcntl(made_[end], F_SETFL, O_DIRECT);
  }
  return {};
}

// ---- Sockets

Result<void> ObjectMaker::make_socket(ObjectNumber number) {
  const LiveObject& object = spec_.objects[number];
  if (object.peer) return make_connection(number, *object.peer);
  const auto listener = std::find_if(spec_.objects.begin(), spec_.objects.end(), [&](const LiveObject& each) {
    return std::find(each.queued.begin(), each.queued.end(), number) != each.queued.end();
  });
  const bool waits = listener != spec_.objects.end();
  if (object.connected && !waits) return make_gone(number);
  TRY(keep(number, ::socket(object.domain, object.type | SOCK_CLOEXEC, object.protocol)));
  TRY(set_options(number));
  return object.bound.empty() ? Result<void>() : bind_again(number);
}

// Does something where a process is that has the object, so that its relative path means what it meant.
int ObjectMaker::in_directory_of(ObjectNumber number, const std::function<int()>& act) const {
  const int here = ::open(".", O_PATH | O_CLOEXEC);
  for (const LiveProcess& process : spec_.processes) {
    const auto& table = process.descriptors;
    const bool has =
        std::any_of(table.begin(), table.end(), [&](const auto& its) { return its.second.object == number; });
    if (has && process.directory && chdir(process.directory->c_str()) == 0) break;
  }
  const int result = act();
  const bool back = fchdir(here) == 0;
  ::close(here);
  return back ? result : ENOENT;
}

// Whether somebody has the unix socket that is there: it is not just what a process has left behind.
bool ObjectMaker::is_in_use(int type, const Bytes& address) {
  const Fd probe(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return !probe || ::connect(probe.get(), address_of(address), size_of(address)) == 0 || errno != ECONNREFUSED;
}

// To the address that it was bound to. Of a datagram socket or one that listens, others know the port that the kernel
// had chosen.
Result<void> ObjectMaker::bind_again(ObjectNumber number) const {
  const LiveObject& object = spec_.objects[number];
  const bool inet = is_internet(object);
  const bool known_to_others = object.backlog || object.type == SOCK_DGRAM;
  const bool any_port = inet && known_to_others && !object.own_address.empty();
  const Bytes& address = any_port || object.bound.empty() ? object.own_address : object.bound;
  if (address.empty()) return {};
  if (inet) {
    const int err = bind_when_free(made_[number], address, object.backlog.has_value());
    return err ? Result<void>(errno_error("cannot bind a socket to " + port_of(address) + " again", err))
               : Result<void>();
  }
  sockaddr_un name{};
  std::memcpy(&name, address.data(), std::min(address.size(), sizeof name - 1));
  const int err = in_directory_of(number, [&] {
    struct stat info {};
    if (name.sun_path[0] && stat(name.sun_path, &info) == 0 && S_ISSOCK(info.st_mode)) {
      if (is_in_use(object.type, address)) return EADDRINUSE;
      unlink(name.sun_path);
    }
    return ::bind(made_[number], address_of(address), size_of(address)) == 0 ? 0 : errno;
  });
  if (err) return errno_error(fmt::format("cannot bind a socket to {} again", name.sun_path), err);
  return {};
}

Result<void> ObjectMaker::make_connection(ObjectNumber a, ObjectNumber b) {
  const LiveObject& object = spec_.objects[a];
  ASSIGN_OR_RETURN(const Ends ends,
                   is_internet(object) ? connect_internet(object.domain) : connect_again(object, spec_.objects[b]));
  TRY(keep(a, ends.first));
  TRY(keep(b, ends.second));
  TRY(set_options(a));
  return set_options(b);
}

// A connection whose other end is outside: it finds that the peer has gone.
Result<void> ObjectMaker::make_gone(ObjectNumber number) {
  const LiveObject& object = spec_.objects[number];
  const bool internet = is_internet(object) && object.type == SOCK_STREAM;
  ASSIGN_OR_RETURN(const Ends ends, internet ? connect_internet(object.domain) : make_socket_pair(object.type, 0));
  return keep(number, ends.first);
}

Result<void> ObjectMaker::set_options(ObjectNumber number) const {
  for (const auto& option : spec_.objects[number].options) {
    // What cannot be set now could not do harm then: the program goes on without it.
    setsockopt(made_[number], option.level, option.name, option.value.data(), size_of(option.value));
  }
  return {};
}

Result<void> ObjectMaker::listen_again(ObjectNumber number) {
  const LiveObject& object = spec_.objects[number];
  TRY(keep(number, ::socket(object.domain, object.type | SOCK_CLOEXEC, object.protocol)));
  TRY(set_options(number));
  const int fd = made_[number];
  const int yes = 1;
  if (is_internet(object)) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  TRY(bind_again(number));
  const int err = do_as(object.peer_id, {}, [&] { return listen(fd, *object.backlog) == 0 ? 0 : errno; });
  if (err) return errno_error("cannot listen again", err);
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size);
  for (const ObjectNumber waiting : object.queued) {
    const int failed = do_as(spec_.objects[waiting].peer_id, {}, [&] {
      return connect(made_[waiting], reinterpret_cast<const sockaddr*>(&name), size) == 0 ? 0 : errno;
    });
    if (failed && failed != EINPROGRESS) return errno_error("cannot connect again", failed);
  }
  return {};
}

// ---- The rest

Result<void> ObjectMaker::make_special(ObjectNumber number) {
  const LiveObject& object = spec_.objects[number];
  int fd = -1;
  switch (object.kind) {
    case Kind::eventfd: {
      const int flags = static_cast<int>(object.flags) & EFD_SEMAPHORE;
      fd = eventfd(0, flags | EFD_CLOEXEC | EFD_NONBLOCK);
      if (object.counter > 0 && ::write(fd, &object.counter, sizeof object.counter) < 0) {
        return errno_error("cannot set a counter (eventfd(2))");
      }
      break;
    }
    case Kind::epoll:
      fd = epoll_create1(EPOLL_CLOEXEC);
      break;
    case Kind::timerfd:
      fd = timerfd_create(object.clock, TFD_CLOEXEC);
      if (object.timer && syscall(SYS_timerfd_settime, fd, object.timer->flags, &object.timer->value, nullptr) != 0) {
        return errno_error("cannot set a timer (timerfd_settime(2))");
      }
      break;
    default:
      fd = static_cast<int>(syscall(SYS_signalfd4, -1, &object.mask, sizeof object.mask, SFD_CLOEXEC));
  }
  return keep(number, fd);
}

// ---- What was on its way

// Puts it into the object, or keeps what is needed to do that later.
Result<void> ObjectMaker::fill(ObjectNumber number) {
  const LiveObject& object = spec_.objects[number];
  if (object.peer && !object.arriving.empty()) make_room(number, made_[*object.peer]);
  const auto from = [&](const LiveMessage& message) {
    return object.peer ? made_[*object.peer] : message.from ? made_[*message.from] : -1;
  };
  TRY(give_all(number, object.arriving, from));
  return give_all(number, object.sent_ahead, [&](const LiveMessage&) { return made_[number]; });
}

// In pipes and TCP connections.
void ObjectMaker::make_room(ObjectNumber number, int from) const {
  const LiveObject& object = spec_.objects[number];
  constexpr uint64_t kUsual = 1 << 16;
  uint64_t all = 0, in_pages = 0;
  for (const LiveMessage& message : object.arriving) {
    all += message.bytes.size();
    in_pages += page_up(message.bytes.size());
  }
  if (object.kind == Kind::pipe) {
    const bool packets = spec_.objects[*object.peer].flags & O_DIRECT;  // of which each has pages of its own
    if (packets && in_pages > kUsual) fcntl(from, F_SETPIPE_SZ, static_cast<int>(in_pages));
    if (!packets && all > kUsual) fcntl(from, F_SETPIPE_SZ, static_cast<int>(all + kUsual));
  }
  if (!is_internet(object)) return;
  const int room = static_cast<int>(std::min<uint64_t>(2 * all + kUsual, INT32_MAX));
  setsockopt(from, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
  setsockopt(made_[number], SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
}

// `from`: the sender's descriptor; -1: it was closed since.
Result<void> ObjectMaker::give_all(ObjectNumber number, const std::vector<LiveMessage>& messages,
                                   const std::function<int(const LiveMessage&)>& from) {
  const LiveObject& object = spec_.objects[number];
  for (auto message = messages.begin(); message != messages.end(); ++message) {
    const int sender = from(*message);
    const Fd another(sender < 0 ? ::socket(object.domain, object.type | SOCK_CLOEXEC, object.protocol) : -1);
    const Put put = give(number, *message, sender < 0 ? another.get() : sender);
    if (put.error) return does_not_fit(number, {message, messages.end()}, messages, put);
  }
  return {};
}

Put ObjectMaker::give(ObjectNumber number, const LiveMessage& message, int from) {
  Bytes to;
  if (is_open_to_all(spec_.objects[number])) {
    sockaddr_storage name{};
    socklen_t size = sizeof name;
    getsockname(made_[number], reinterpret_cast<sockaddr*>(&name), &size);
    to.assign(reinterpret_cast<uint8_t*>(&name), reinterpret_cast<uint8_t*>(&name) + size);
  }
  if (message.withheld) {
    withheld_.push_back({number, fcntl(from, F_DUPFD_CLOEXEC, first_), to, &message});
    return {message.bytes.size()};
  }
  const Put put = put_there(number, from, to, message);
  if (message.taken) take_urgent(made_[number]);
  return put;
}

Put ObjectMaker::put_there(ObjectNumber number, int from, const Bytes& to, const LiveMessage& message) const {
  Put put;
  in_directory_of(number, [&] {
    put = put_message(from, to, message);
    return 0;
  });
  return put;
}

// `left`: the messages that were not put there, of the first of which `put` tells.
Error ObjectMaker::does_not_fit(ObjectNumber number, std::span<const LiveMessage> left,
                                std::span<const LiveMessage> all, const Put& put) const {
  const auto bytes = [](std::span<const LiveMessage> messages) {
    return std::accumulate(messages.begin(), messages.end(), size_t{0},
                           [](size_t sum, const LiveMessage& message) { return sum + message.bytes.size(); });
  };
  std::string where = "a connection that is not accepted";
  for (const LiveProcess& process : spec_.processes) {
    for (const auto& [fd, descriptor] : process.descriptors) {
      if (descriptor.object == number) where = fmt::format("descriptor {} of unit {}", fd, process.unit);
    }
  }
  const std::string text = fmt::format("{} of the {} bytes ({} of the {} messages) on their way to {} do not fit there",
                                       bytes(left) - put.bytes, bytes(all), left.size(), all.size(), where);
  return put.error == EAGAIN || put.error == ENOBUFS ? Error{text} : errno_error(text, put.error);
}

Result<void> ObjectMaker::put_withheld() {
  for (const Withheld& each : withheld_) {
    const Put put = put_there(each.receiver, each.from, each.to, *each.message);
    const bool full = put.error == EAGAIN || put.error == ENOBUFS;  // otherwise its receiver is gone
    if (full) return does_not_fit(each.receiver, {each.message, 1}, {each.message, 1}, put);
  }
  for (const int fd : to_shut_) shutdown(fd, SHUT_WR);
  for (const Withheld& each : withheld_) ::close(each.from);
  for (const int fd : to_shut_) ::close(fd);
  return {};
}

}  // namespace redrive
