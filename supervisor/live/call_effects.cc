#include "supervisor/live/call_effects.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <linux/falloc.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "interceptors/syscall_table.h"
#include "supervisor/live/attribute_effects.h"
#include "supervisor/live/written.h"

namespace redrive {
// Functions have the names of the calls whose effects they are.
namespace call_effects {
namespace {

using Kind = OpenObject::Kind;

int as_int(uint64_t value) { return static_cast<int>(value); }

// ---- Descriptors

OpenObject& make(const FinishedCall& call, Kind kind, uint64_t flags) {
  OpenObject& object = call.model.objects().emplace_back();
  object.kind = kind;
  object.made = call.past;
  object.flags = flags;
  return object;
}

void place(const FinishedCall& call, int fd, bool close_on_exec) {
  (*call.process.descriptors)[fd] = {call.model.objects().size() - 1, close_on_exec};
}

Descriptor* descriptor(const FinishedCall& call, uint64_t fd) {
  const auto found = call.process.descriptors->find(as_int(fd));
  return found == call.process.descriptors->end() ? nullptr : &found->second;
}

// A descriptor that no call has made was there when the program was started.
OpenObject* object_of(const FinishedCall& call, uint64_t fd) {
  if (const Descriptor* const known = descriptor(call, fd)) return &call.model.objects()[known->object];
  if (as_int(fd) < 0) return nullptr;
  OpenObject& object = call.model.objects().emplace_back();
  object.kind = Kind::inherited;
  object.number = as_int(fd);
  place(call, as_int(fd), false);
  return &object;
}

Bytes written_bytes(const Event& event, uint64_t address, size_t most) {
  for (const MemoryWrite& write : event.writes) {
    if (write.address != address) continue;
    return {write.data.begin(), write.data.begin() + static_cast<long>(std::min(most, write.data.size()))};
  }
  return {};
}

DirectoryRef directory_at(const FinishedCall& call, uint64_t fd) {
  const Descriptor* const known = as_int(fd) == AT_FDCWD ? nullptr : descriptor(call, fd);
  if (!known) return *call.process.directory;
  const OpenObject& object = call.model.objects()[known->object];
  const uint64_t path = object.made.number == SYS_open || object.made.number == SYS_creat ? 0 : 1;
  return std::make_shared<const Directory>(
      Directory{object.made.event, object.made.number, path, object.base, object.names_before});
}

void open_with(const FinishedCall& call, DirectoryRef base, uint64_t flags) {
  OpenObject& object = make(call, Kind::file, flags);
  object.base = std::move(base);
  object.offset = 0;
  object.path_hash = call.event.in_hash;
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  object.names_before = call.model.name_changes().size();
  const bool is_new = (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL) || (flags & O_TMPFILE) == O_TMPFILE;
  object.was_empty = writes && (flags & O_TRUNC || is_new);
  object.nonblocking = flags & O_NONBLOCK;
  place(call, as_int(static_cast<uint64_t>(call.event.result)), flags & O_CLOEXEC);
}

void open(const FinishedCall& call) { open_with(call, *call.process.directory, call.event.args[1]); }
void creat(const FinishedCall& call) { open_with(call, *call.process.directory, O_CREAT | O_WRONLY | O_TRUNC); }
void openat(const FinishedCall& call) { open_with(call, directory_at(call, call.event.args[0]), call.event.args[2]); }

void mknod(const FinishedCall& call) {
  if (S_ISFIFO(call.event.args[1])) call.model.note_fifo(call.past, *call.process.directory);
}
void mknodat(const FinishedCall& call) {
  if (S_ISFIFO(call.event.args[2])) call.model.note_fifo(call.past, directory_at(call, call.event.args[0]));
}

// ---- Names of files

void change_names(const FinishedCall& call) {
  call.model.note_name_change({call.past, *call.process.directory, *call.process.directory});
}
void change_names_at(const FinishedCall& call) {
  call.model.note_name_change(
      {call.past, directory_at(call, call.event.args[0]), directory_at(call, call.event.args[2])});
}
void unlinkat(const FinishedCall& call) {
  call.model.note_name_change({call.past, directory_at(call, call.event.args[0]), nullptr});
}

// ---- More descriptors

void pair_of(const FinishedCall& call, Kind kind, uint64_t address, uint64_t flags, bool close_on_exec) {
  int fds[2];
  if (!written(call.event, address, fds)) return;
  const ObjectNumber first = call.model.objects().size();
  for (int end = 0; end < 2; ++end) {
    OpenObject& object = make(call, kind, flags);
    object.end_number = end;
    object.peer = first + static_cast<size_t>(1 - end);
    object.nonblocking = flags & O_NONBLOCK;
    object.peer_id = call.process.pid;
    place(call, fds[end], close_on_exec);
  }
}

void pipe(const FinishedCall& call) { pair_of(call, Kind::pipe, call.event.args[0], 0, false); }
void pipe2(const FinishedCall& call) {
  pair_of(call, Kind::pipe, call.event.args[0], call.event.args[1], call.event.args[1] & O_CLOEXEC);
}
void socketpair(const FinishedCall& call) {
  const uint64_t type = call.event.args[1];
  pair_of(call, Kind::socket, call.event.args[3], type & SOCK_NONBLOCK, type & SOCK_CLOEXEC);
}

// A call that returns a descriptor: `flags_argument` has O_CLOEXEC and O_NONBLOCK, which all such flags equal.
template <Kind kind, int flags_argument>
void descriptor_made(const FinishedCall& call) {
  const uint64_t flags = flags_argument < 0 ? 0 : call.event.args[static_cast<size_t>(std::max(flags_argument, 0))];
  OpenObject& object = make(call, kind, flags);
  object.nonblocking = flags & O_NONBLOCK;
  place(call, as_int(static_cast<uint64_t>(call.event.result)), flags & O_CLOEXEC);
}

void memfd_create(const FinishedCall& call) {
  constexpr uint64_t kCloseOnExec = 1;  // MFD_CLOEXEC
  make(call, Kind::memfd, 0);
  place(call, as_int(static_cast<uint64_t>(call.event.result)), call.event.args[1] & kCloseOnExec);
}

void accept_with(const FinishedCall& call, uint64_t flags) {
  const Descriptor* const listener = descriptor(call, call.event.args[0]);
  const std::optional<ObjectNumber> from = listener ? std::optional(listener->object) : std::nullopt;
  OpenObject& object = make(call, Kind::socket, flags);
  object.nonblocking = flags & SOCK_NONBLOCK;
  object.accepted_from = from;
  if (from) object.peer_id = call.model.objects()[*from].peer_id;
  uint32_t size = 0;
  if (call.event.args[1] && written(call.event, call.event.args[2], size)) {
    object.peer_address = written_bytes(call.event, call.event.args[1], size);
  }
  place(call, as_int(static_cast<uint64_t>(call.event.result)), flags & SOCK_CLOEXEC);
}
void accept(const FinishedCall& call) { accept_with(call, 0); }
void accept4(const FinishedCall& call) { accept_with(call, call.event.args[3]); }

void close(const FinishedCall& call) { call.process.descriptors->erase(as_int(call.event.args[0])); }

void close_range(const FinishedCall& call) {
  if (call.event.args[2] & CLOSE_RANGE_UNSHARE) {
    call.process.descriptors = std::make_shared<DescriptorTable>(*call.process.descriptors);
  }
  const auto first = static_cast<uint32_t>(call.event.args[0]), last = static_cast<uint32_t>(call.event.args[1]);
  DescriptorTable& table = *call.process.descriptors;
  for (auto each = table.begin(); each != table.end();) {
    const auto number = static_cast<uint32_t>(each->first);
    if (number < first || number > last) {
      ++each;
    } else if (call.event.args[2] & CLOSE_RANGE_CLOEXEC) {
      (each++)->second.close_on_exec = true;
    } else {
      each = table.erase(each);
    }
  }
}

void duplicate(const FinishedCall& call, bool close_on_exec) {
  if (!object_of(call, call.event.args[0])) return;
  const int to = as_int(static_cast<uint64_t>(call.event.result));
  if (to == as_int(call.event.args[0])) return;
  (*call.process.descriptors)[to] = {descriptor(call, call.event.args[0])->object, close_on_exec};
}
void dup(const FinishedCall& call) { duplicate(call, false); }
void dup3(const FinishedCall& call) { duplicate(call, call.event.args[2] & O_CLOEXEC); }

void fcntl(const FinishedCall& call) {
  const uint64_t argument = call.event.args[2];
  switch (as_int(call.event.args[1])) {
    case F_DUPFD:
      return duplicate(call, false);
    case F_DUPFD_CLOEXEC:
      return duplicate(call, true);
    case F_SETFD:
      if (object_of(call, call.event.args[0])) {
        descriptor(call, call.event.args[0])->close_on_exec = argument & FD_CLOEXEC;
      }
      return;
    case F_SETFL:
      if (OpenObject* const object = object_of(call, call.event.args[0])) {
        constexpr uint64_t kCanChange = O_APPEND | O_NONBLOCK | O_ASYNC | O_DIRECT | O_NOATIME;
        object->flags = (object->flags & ~kCanChange) | (argument & kCanChange);
        object->nonblocking = argument & O_NONBLOCK;
      }
      return;
    case F_SETPIPE_SZ:
      if (OpenObject* const object = object_of(call, call.event.args[0])) {
        object->capacity = static_cast<uint64_t>(call.event.result);
        if (object->peer) call.model.objects()[*object->peer].capacity = object->capacity;
      }
      return;
    default:
      return;
  }
}

void flock(const FinishedCall& call) {
  const int operation = as_int(call.event.args[1]) & ~LOCK_NB;
  if (OpenObject* const object = object_of(call, call.event.args[0])) object->lock = operation & ~LOCK_UN;
}

void ioctl(const FinishedCall& call) {
  if (!object_of(call, call.event.args[0])) return;
  switch (call.event.args[1]) {
    case FIOCLEX:
    case FIONCLEX:
      descriptor(call, call.event.args[0])->close_on_exec = call.event.args[1] == FIOCLEX;
      return;
    case TIOCGPTN:
      if (int number = 0; written(call.event, call.event.args[2], number)) {
        object_of(call, call.event.args[0])->terminal = number;
      }
      return;
    case TIOCGPTPEER: {
      const auto master = object_of(call, call.event.args[0])->terminal;
      OpenObject& object = make(call, master ? Kind::file : Kind::other, call.event.args[2]);
      object.terminal_of = master;
      return place(call, as_int(static_cast<uint64_t>(call.event.result)), call.event.args[2] & O_CLOEXEC);
    }
    case TCSETS:
    case TCSETSW:
    case TCSETSF:
    case FIONBIO:
      object_of(call, call.event.args[0])->settings.push_back(call.past);
      return;
    default:
      return;
  }
}

// ---- What is read and written

void moves(OpenObject& object, int64_t bytes) {
  if (object.kind == Kind::file && object.offset) *object.offset += static_cast<uint64_t>(bytes);
}

bool keeps_messages_apart(const FinishedCall& call, const OpenObject& object) {
  const int type = socket_type(call.model, object);
  return type != 0 && type != SOCK_STREAM;
}

void note_received(const FinishedCall& call, OpenObject& object, uint64_t packets) {
  const bool apart = keeps_messages_apart(call, object);
  if (apart) object.packet_receipts.insert(object.packet_receipts.end(), packets, call.returned);
  if (!call.event.receive) return;
  object.in_channel = call.event.receive->channel;
  if (!apart) return;
  for (const MessagePart& part : call.event.receive->parts) object.datagrams.insert(part.sender);
}

// An event that holds no send has sent nothing, or nothing that can be followed.
void note_sent(const FinishedCall& call, OpenObject& object) {
  if (!call.event.send) return;
  object.out_channel = call.event.send->channel;
  if (!keeps_messages_apart(call, object)) return;
  const EventRef send = call.past.event;
  const uint64_t at_ns = call.event.time.at_ns;
  if (call.event.number != SYS_sendmmsg) {
    object.packets.push_back({send, 0, call.event.send->length, at_ns});
    return;
  }
  uint64_t offset = 0;
  for (uint64_t i = 0; i < static_cast<uint64_t>(call.event.result); ++i) {
    uint32_t length = 0;
    static_cast<void>(
        written(call.event, call.event.args[1] + i * sizeof(mmsghdr) + offsetof(mmsghdr, msg_len), length));
    object.packets.push_back({send, offset, length, at_ns});
    offset += length;
  }
}

void read_signals(const FinishedCall& call) {
  const auto bytes = static_cast<uint64_t>(call.event.result);
  for (uint64_t at = 0; at + sizeof(signalfd_siginfo) <= bytes; at += sizeof(signalfd_siginfo)) {
    uint32_t signal = 0;
    if (!written(call.event, call.event.args[1] + at, signal)) continue;
    call.model.take_signal(call.thread, call.process, as_int(signal));
  }
}

void note_read(const FinishedCall& call, OpenObject& object) {
  const auto bytes = static_cast<uint64_t>(call.event.result);
  if (object.kind == Kind::file && object.offset && bytes > 0) {
    object.last_read = call.past;
    object.last_read_at = *object.offset;
  }
  if (object.kind == Kind::signalfd) read_signals(call);
  if (object.kind == Kind::eventfd) {
    object.users.insert(call.past.event.unit);
    uint64_t value = 0;
    const bool counts_down = object.made.args[1] & EFD_SEMAPHORE;
    if (!counts_down && written(call.event, call.event.args[1], value)) object.changes.clear();
    object.changes.push_back(call.past);
  }
  if (object.kind == Kind::timerfd && !call.event.writes.empty()) {
    uint64_t expired = 0;
    if (written(call.event, call.event.writes.front().address, expired)) object.expirations += expired;
  }
  object.read_bytes += bytes;
  const bool asked = call.event.args[2] > 0;  // a socket gives nothing to who asks for nothing
  note_received(call, object, asked ? 1 : 0);
  moves(object, call.event.result);
}

void forget_content(OpenObject& object) {
  object.length.reset();
  object.content.clear();
}

// The call has put bytes into a file. `offset`: none if it is not known where.
void put_into(const FinishedCall& call, OpenObject& object, std::optional<uint64_t> offset) {
  const auto bytes = static_cast<uint64_t>(call.event.result);
  if (object.kind != Kind::file || bytes == 0) return;
  ++object.times_changed;
  if (!object.length || !offset) return forget_content(object);
  object.content.push_back({call.past.event, call.event.number, *offset, bytes});
  object.length = std::max(*object.length, *offset + bytes);
}

void make_as_long(const FinishedCall& call, OpenObject& object, uint64_t length) {
  ++object.times_changed;
  if (!object.length) return;
  object.content.push_back({call.past.event, call.event.number, length, 0});
  object.length = length;
  object.was_empty |= length == 0;
}

void put_at_place(const FinishedCall& call, OpenObject& object, bool appends) {
  put_into(call, object, appends ? object.known_length() : object.offset);
  if (appends && object.kind == Kind::file) {
    object.offset = object.known_length();
  } else {
    moves(object, call.event.result);
  }
}

void note_written(const FinishedCall& call, OpenObject& object) {
  object.written_bytes += static_cast<uint64_t>(call.event.result);
  if (object.kind == Kind::eventfd) {
    object.users.insert(call.past.event.unit);
    object.changes.push_back(call.past);
  }
  note_sent(call, object);
  put_at_place(call, object, object.flags & O_APPEND);
}

void read(const FinishedCall& call) {
  if (OpenObject* const object = object_of(call, call.event.args[0])) note_read(call, *object);
}
void write(const FinishedCall& call) {
  if (OpenObject* const object = object_of(call, call.event.args[0])) note_written(call, *object);
}
constexpr uint64_t kHere = ~uint64_t{0};  // preadv2, pwritev2: at the description's offset

void preadv2(const FinishedCall& call) {
  if (call.event.args[3] == kHere) read(call);
}
void pwrite(const FinishedCall& call) {
  OpenObject* const object = object_of(call, call.event.args[0]);
  if (object) put_into(call, *object, object->flags & O_APPEND ? object->known_length() : call.event.args[3]);
}
void pwritev2(const FinishedCall& call) {
  OpenObject* const object = object_of(call, call.event.args[0]);
  if (!object) return;
  const uint64_t offset = call.event.args[3], flags = call.event.args[5];
  const bool appends = flags & RWF_APPEND || (object->flags & O_APPEND && !(flags & RWF_NOAPPEND));
  if (object->kind != Kind::file) return note_written(call, *object);
  if (offset == kHere) return put_at_place(call, *object, appends);
  put_into(call, *object, appends ? object->known_length() : offset);
}

template <int flags_argument>
void receive(const FinishedCall& call) {
  OpenObject* const object = object_of(call, call.event.args[0]);
  if (!object) return;
  const auto result = static_cast<uint64_t>(call.event.result);
  const bool several = call.event.number == SYS_recvmmsg;
  const bool takes = !(call.event.args[flags_argument] & (MSG_PEEK | MSG_ERRQUEUE));
  note_received(call, *object, !takes ? 0 : several ? result : 1);
  if (takes && !several) object->read_bytes += result;
}
void send(const FinishedCall& call) {
  OpenObject* const object = object_of(call, call.event.args[0]);
  if (!object) return;
  note_sent(call, *object);
  if (call.event.number != SYS_sendmmsg) object->written_bytes += static_cast<uint64_t>(call.event.result);
}

void lseek(const FinishedCall& call) {
  if (OpenObject* const object = object_of(call, call.event.args[0])) {
    object->offset = static_cast<uint64_t>(call.event.result);
  }
}

void ftruncate(const FinishedCall& call) {
  if (OpenObject* const object = object_of(call, call.event.args[0])) make_as_long(call, *object, call.event.args[1]);
}

// All that were opened by this path may be the file.
void truncate(const FinishedCall& call) {
  for (OpenObject& object : call.model.objects()) {
    if (object.kind != Kind::file || object.path_hash != call.event.in_hash) continue;
    ++object.times_changed;
    forget_content(object);
  }
}

void fallocate(const FinishedCall& call) {
  OpenObject* const object = object_of(call, call.event.args[0]);
  const uint64_t mode = call.event.args[1], end = call.event.args[2] + call.event.args[3];
  if (!object || mode == FALLOC_FL_KEEP_SIZE) return;
  if (mode == 0) {
    if (!object->length || end > *object->length) make_as_long(call, *object, end);
    return;
  }
  ++object->times_changed;
  forget_content(*object);
}

// The place in a directory is that of the last entry.
void getdents64(const FinishedCall& call) {
  OpenObject* const object = object_of(call, call.event.args[0]);
  if (!object || call.event.result <= 0) return;
  struct Entry {
    uint64_t inode;
    uint64_t next;
    uint16_t length;
  };
  const auto end = static_cast<uint64_t>(call.event.result);
  for (uint64_t at = 0; at < end;) {
    uint64_t next = 0;
    uint16_t length = 0;
    const uint64_t entry = call.event.args[1] + at;
    if (!written(call.event, entry + offsetof(Entry, next), next) ||
        !written(call.event, entry + offsetof(Entry, length), length) || length == 0) {
      object->offset.reset();
      return;
    }
    object->offset = next;
    at += length;
  }
}

template <int in, int out, int in_offset, int out_offset>
void move_between(const FinishedCall& call) {
  const auto& args = call.event.args;
  OpenObject* const from = object_of(call, args[in]);
  const bool moves_from = in_offset < 0 || args[static_cast<size_t>(std::max(in_offset, 0))] == 0;
  if (from && moves_from) {
    from->read_bytes += static_cast<uint64_t>(call.event.result);
    moves(*from, call.event.result);
  }
  OpenObject* const to = object_of(call, args[out]);
  if (!to) return;
  const uint64_t place = out_offset < 0 ? 0 : args[static_cast<size_t>(std::max(out_offset, 0))];
  if (place == 0) return note_written(call, *to);
  uint64_t after = 0;
  const bool known = written(call.event, place, after);
  put_into(call, *to, known ? std::optional(after - static_cast<uint64_t>(call.event.result)) : std::nullopt);
}

// ---- Sockets and the like

void set_up(const FinishedCall& call) {
  if (OpenObject* const object = object_of(call, call.event.args[0])) object->settings.push_back(call.past);
}
void listen(const FinishedCall& call) {
  OpenObject* const object = object_of(call, call.event.args[0]);
  if (!object) return;
  object->listens = call.past;
  object->peer_id = call.process.pid;
}
void getsockname(const FinishedCall& call) {
  OpenObject* const object = object_of(call, call.event.args[0]);
  uint32_t size = 0;
  if (!object || !written(call.event, call.event.args[2], size)) return;
  object->own_address = written_bytes(call.event, call.event.args[1], size);
}
void getpeername(const FinishedCall& call) {
  OpenObject* const object = object_of(call, call.event.args[0]);
  uint32_t size = 0;
  if (!object || !written(call.event, call.event.args[2], size)) return;
  object->peer_address = written_bytes(call.event, call.event.args[1], size);
}
void shutdown(const FinishedCall& call) {
  OpenObject* const object = object_of(call, call.event.args[0]);
  if (!object) return;
  const int how = as_int(call.event.args[1]);
  if (how != SHUT_WR) object->shut[0] = true;
  if (how != SHUT_RD) object->shut[1] = true;
}
void connect(const FinishedCall& call) {
  OpenObject* const object = object_of(call, call.event.args[0]);
  if (!object) return;
  object->connects = call.past;
  object->peer_id = call.process.pid;
}
void epoll_ctl(const FinishedCall& call) {
  OpenObject* const object = object_of(call, call.event.args[0]);
  if (!object) return;
  const int fd = as_int(call.event.args[2]);
  object->watched.erase(fd);
  object->watched_objects.erase(fd);
  if (as_int(call.event.args[1]) == EPOLL_CTL_DEL) return;
  if (!object_of(call, call.event.args[2])) return;
  OpenObject& again = *object_of(call, call.event.args[0]);  // objects may have moved
  again.watched[fd] = call.past;
  again.watched_since[fd] = ++again.watch_changes;
  again.watched_objects[fd] = descriptor(call, call.event.args[2])->object;
}
// What it has reported.
void epoll_wait(const FinishedCall& call) {
  OpenObject* const object = object_of(call, call.event.args[0]);
  if (!object) return;
  for (int64_t i = 0; i < call.event.result; ++i) {
    epoll_event event{};
    if (!written(call.event, call.event.args[1] + static_cast<uint64_t>(i) * sizeof event, event)) continue;
    object->reported_at[event.data.u64] = object->watch_changes;
  }
}
void set_object(const FinishedCall& call) {  // timerfd_settime
  OpenObject* const object = object_of(call, call.event.args[0]);
  if (!object) return;
  object->changes = {call.past};
  object->expirations = 0;
}
void signalfd4(const FinishedCall& call) {
  if (as_int(call.event.args[0]) >= 0) return set_object(call);
  OpenObject& object = make(call, Kind::signalfd, call.event.args[3]);
  object.nonblocking = call.event.args[3] & O_NONBLOCK;
  object.changes = {call.past};
  place(call, as_int(static_cast<uint64_t>(call.event.result)), call.event.args[3] & O_CLOEXEC);
}

void mmap(const FinishedCall& call) {
  const bool shared = (call.event.args[3] & MAP_TYPE) != MAP_PRIVATE && !(call.event.args[3] & MAP_ANONYMOUS);
  const Descriptor* const known = shared ? descriptor(call, call.event.args[4]) : nullptr;
  if (known) call.model.objects()[known->object].mapped = true;
}

// ---- Processes and threads

void chdir(const FinishedCall& call) {
  *call.process.directory = std::make_shared<const Directory>(
      Directory{call.past.event, SYS_chdir, 0, *call.process.directory, call.model.name_changes().size()});
}
void fchdir(const FinishedCall& call) { *call.process.directory = directory_at(call, call.event.args[0]); }
void umask(const FinishedCall& call) { *call.process.umask = static_cast<int64_t>(call.event.args[0]); }

void rt_sigaction(const FinishedCall& call) {
  if (call.event.args[1]) call.process.actions[as_int(call.event.args[0])] = {call.past, false};
}

void rt_sigprocmask(const FinishedCall& call) {
  uint64_t before = 0;
  auto& mask = call.thread.mask;
  if (call.event.args[2] && written(call.event, call.event.args[2], before)) {
    mask.clear();
    MaskChange known;
    known.known = before;
    mask.push_back(known);
  }
  if (!call.event.args[1]) return;
  if (as_int(call.event.args[0]) == SIG_SETMASK) mask.clear();
  MaskChange change;
  change.call = call.past;
  mask.push_back(change);
}

void sigaltstack(const FinishedCall& call) {
  if (call.event.args[0]) call.thread.alternate_stack = call.past;
}
void set_robust_list(const FinishedCall& call) {
  call.thread.robust_list = call.event.args[0];
  call.thread.robust_length = call.event.args[1];
}
void set_tid_address(const FinishedCall& call) { call.thread.clear_tid = call.event.args[0]; }

void setrlimit(const FinishedCall& call) { call.process.limits[call.event.args[0]] = call.past; }
void prlimit64(const FinishedCall& call) {
  const bool own = call.event.args[0] == 0 || as_int(call.event.args[0]) == call.process.pid;
  if (own && call.event.args[2]) call.process.limits[call.event.args[1]] = call.past;
}

void setitimer(const FinishedCall& call) { call.process.timers[call.event.args[0]] = {call.past, false}; }
void alarm(const FinishedCall& call) { call.process.timers[ITIMER_REAL] = {call.past, false}; }

void setsid(const FinishedCall& call) {
  call.process.leads_session = true;
  call.process.group = call.process.pid;
}
void setpgid(const FinishedCall& call) {
  const auto pid = static_cast<int32_t>(call.event.args[0]), group = static_cast<int32_t>(call.event.args[1]);
  ProcessModel* const process = pid == 0 ? &call.process : call.model.process_of(pid);
  if (process) process->group = group ? group : process->pid;
}

void change_identity(const FinishedCall& call) { call.process.identities.push_back(call.past); }

// ---- Signals

PendingSignal signal_sent(const FinishedCall& call, uint64_t number, int code) {
  return {as_int(number), code, call.process.pid, 0, {}};
}
PendingSignal signal_queued(const FinishedCall& call, uint64_t number) {
  return {as_int(number), SI_QUEUE, call.process.pid, 0, call.past};
}
// A signal that stops or continues. SIGCONT takes stops that have not happened out of what is pending, and a stop
// SIGCONT.
void stop_or_continue(const FinishedCall& call, ProcessModel& target, int number) {
  const std::vector<int> stops{SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU}, go{SIGCONT};
  const bool is_stop = std::find(stops.begin(), stops.end(), number) != stops.end();
  if (!is_stop && number != SIGCONT) return;
  target.has_continued = !is_stop && (target.may_be_stopped || target.has_continued);
  target.may_be_stopped = is_stop;
  for (const int opposite : is_stop ? go : stops) {
    target.pending.take(opposite);
    for (auto& [name, thread] : call.model.threads()) {
      const auto process = call.model.processes().find({name.first, thread.process});
      if (process != call.model.processes().end() && &process->second == &target) thread.pending.take(opposite);
    }
  }
}
void send_to_process(const FinishedCall& call, ProcessModel* target, const PendingSignal& signal) {
  if (!target || !signal.number) return;
  stop_or_continue(call, *target, signal.number);
  call.model.note_signal(signal.number, target->pid, false);
  if (!target->ended) target->pending.add(signal);
}
void kill(const FinishedCall& call) {
  const auto pid = static_cast<int32_t>(call.event.args[0]);
  const PendingSignal signal = signal_sent(call, call.event.args[1], SI_USER);
  if (pid > 0) return send_to_process(call, call.model.process_of(pid), signal);
  constexpr int32_t kAllOthers = -1;
  const int32_t group = pid == 0 ? call.process.group : -pid;
  for (auto& [name, process] : call.model.processes()) {
    const bool receives = pid == kAllOthers ? &process != &call.process : process.group == group;
    if (receives) send_to_process(call, &process, signal);
  }
}
void send_to_thread(const FinishedCall& call, uint64_t tid, const PendingSignal& signal) {
  ThreadModel* const target = call.model.thread_numbered(as_int(tid));
  if (!target || !signal.number) return;
  if (ProcessModel* const process = call.model.process_of(as_int(tid))) stop_or_continue(call, *process, signal.number);
  call.model.note_signal(signal.number, as_int(tid), true);
  target->pending.add(signal);
}
void tkill(const FinishedCall& call) {
  send_to_thread(call, call.event.args[0], signal_sent(call, call.event.args[1], SI_TKILL));
}
void tgkill(const FinishedCall& call) {
  send_to_thread(call, call.event.args[1], signal_sent(call, call.event.args[2], SI_TKILL));
}
void rt_sigqueueinfo(const FinishedCall& call) {
  send_to_process(call, call.model.process_of(as_int(call.event.args[0])), signal_queued(call, call.event.args[1]));
}
void rt_tgsigqueueinfo(const FinishedCall& call) {
  send_to_thread(call, call.event.args[1], signal_queued(call, call.event.args[2]));
}
void pidfd_send_signal(const FinishedCall& call) {
  const OpenObject* const object = object_of(call, call.event.args[0]);
  if (!object || object->made.number != SYS_pidfd_open) return;
  const bool queued = call.event.args[2] != 0;
  send_to_process(call, call.model.process_of(as_int(object->made.args[0])),
                  queued ? signal_queued(call, call.event.args[1]) : signal_sent(call, call.event.args[1], SI_USER));
}
void rt_sigtimedwait(const FinishedCall& call) {
  call.model.take_signal(call.thread, call.process, as_int(static_cast<uint64_t>(call.event.result)));
}
void note_change(const FinishedCall& call, int32_t pid, bool continued) {
  ProcessModel* const child = call.model.process_of(pid);
  if (!child) return;
  child->may_be_stopped = !continued;
  child->has_continued = false;
}
void wait4(const FinishedCall& call) {
  const auto pid = static_cast<int32_t>(call.event.result);
  int status = 0;
  if (pid <= 0) return;
  const bool has_status = call.event.args[1] && written(call.event, call.event.args[1], status);
  if (has_status && !WIFEXITED(status) && !WIFSIGNALED(status)) return note_change(call, pid, WIFCONTINUED(status));
  call.model.note_wait(pid);
}
void waitid(const FinishedCall& call) {
  int32_t code = 0, pid = 0;
  if (call.event.args[3] & WNOWAIT || !written(call.event, call.event.args[2] + offsetof(siginfo_t, si_code), code) ||
      !written(call.event, call.event.args[2] + offsetof(siginfo_t, si_pid), pid)) {
    return;
  }
  if (pid == 0) return;
  if (code == CLD_STOPPED || code == CLD_CONTINUED) return note_change(call, pid, code == CLD_CONTINUED);
  if (code != CLD_EXITED && code != CLD_KILLED && code != CLD_DUMPED) return;
  call.model.note_wait(pid);
}

const std::map<RowKey, Effect>& effects() {
  constexpr int64_t kOpenTreeWithAttributes = 467;  // newer than many headers
  static const std::map<RowKey, Effect> all{
      {SYS_open, open},
      {SYS_openat, openat},
      {SYS_openat2, descriptor_made<Kind::other, -1>},
      {SYS_mq_open, descriptor_made<Kind::other, -1>},
      {SYS_open_by_handle_at, descriptor_made<Kind::other, -1>},
      {SYS_open_tree, descriptor_made<Kind::other, -1>},
      {kOpenTreeWithAttributes, descriptor_made<Kind::other, -1>},
      {SYS_fsopen, descriptor_made<Kind::other, -1>},
      {SYS_fsmount, descriptor_made<Kind::other, -1>},
      {SYS_fspick, descriptor_made<Kind::other, -1>},
      {SYS_pidfd_getfd, descriptor_made<Kind::other, -1>},
      {SYS_fanotify_init, descriptor_made<Kind::other, -1>},
      {SYS_landlock_create_ruleset, descriptor_made<Kind::other, -1>},
      {SYS_creat, creat},
      {SYS_mknod, mknod},
      {SYS_mknodat, mknodat},
      {SYS_unlink, change_names},
      {SYS_unlinkat, unlinkat},
      {SYS_rmdir, change_names},
      {SYS_rename, change_names},
      {SYS_renameat, change_names_at},
      {SYS_renameat2, change_names_at},
      {SYS_link, change_names},
      {SYS_linkat, change_names_at},
      {SYS_mmap, mmap},
      {SYS_close, close},
      {SYS_close_range, close_range},
      {SYS_dup, dup},
      {SYS_dup2, dup},
      {SYS_dup3, dup3},
      {{SYS_fcntl, F_DUPFD}, fcntl},
      {{SYS_fcntl, F_DUPFD_CLOEXEC}, fcntl},
      {{SYS_fcntl, F_SETFD}, fcntl},
      {{SYS_fcntl, F_SETFL}, fcntl},
      {{SYS_fcntl, F_SETPIPE_SZ}, fcntl},
      {SYS_flock, flock},
      {SYS_ioctl, ioctl},
      {SYS_pipe, pipe},
      {SYS_pipe2, pipe2},
      {SYS_socketpair, socketpair},
      {SYS_socket, descriptor_made<Kind::socket, 1>},
      {SYS_accept, accept},
      {SYS_accept4, accept4},
      {SYS_bind, set_up},
      {SYS_setsockopt, set_up},
      {SYS_listen, listen},
      {SYS_connect, connect},
      {SYS_shutdown, shutdown},
      {SYS_getsockname, getsockname},
      {SYS_getpeername, getpeername},
      {SYS_eventfd, descriptor_made<Kind::eventfd, -1>},
      {SYS_eventfd2, descriptor_made<Kind::eventfd, 1>},
      {SYS_epoll_create, descriptor_made<Kind::epoll, -1>},
      {SYS_epoll_create1, descriptor_made<Kind::epoll, 0>},
      {SYS_epoll_ctl, epoll_ctl},
      {SYS_epoll_wait, epoll_wait},
      {SYS_epoll_pwait, epoll_wait},
      {SYS_epoll_pwait2, epoll_wait},
      {SYS_timerfd_create, descriptor_made<Kind::timerfd, 1>},
      {SYS_timerfd_settime, set_object},
      {SYS_signalfd4, signalfd4},
      {SYS_memfd_create, memfd_create},
      {SYS_read, read},
      {SYS_readv, read},
      {SYS_write, write},
      {SYS_writev, write},
      {SYS_recvfrom, receive<3>},
      {SYS_recvmsg, receive<2>},
      {SYS_recvmmsg, receive<3>},
      {SYS_sendto, send},
      {SYS_sendmsg, send},
      {SYS_sendmmsg, send},
      {SYS_lseek, lseek},
      {SYS_preadv2, preadv2},
      {SYS_pwrite64, pwrite},
      {SYS_pwritev, pwrite},
      {SYS_pwritev2, pwritev2},
      {SYS_ftruncate, ftruncate},
      {SYS_truncate, truncate},
      {SYS_fallocate, fallocate},
      {SYS_getdents64, getdents64},
      {SYS_sendfile, move_between<1, 0, 2, -1>},
      {SYS_copy_file_range, move_between<0, 2, 1, 3>},
      {SYS_splice, move_between<0, 2, 1, 3>},
      {SYS_vmsplice, write},
      {SYS_chdir, chdir},
      {SYS_fchdir, fchdir},
      {SYS_umask, umask},
      {SYS_rt_sigaction, rt_sigaction},
      {SYS_rt_sigprocmask, rt_sigprocmask},
      {SYS_rt_sigtimedwait, rt_sigtimedwait},
      {SYS_sigaltstack, sigaltstack},
      {SYS_set_robust_list, set_robust_list},
      {SYS_set_tid_address, set_tid_address},
      {SYS_setrlimit, setrlimit},
      {SYS_prlimit64, prlimit64},
      {SYS_setitimer, setitimer},
      {SYS_alarm, alarm},
      {SYS_setsid, setsid},
      {SYS_setpgid, setpgid},
      {SYS_setuid, change_identity},
      {SYS_setgid, change_identity},
      {SYS_setreuid, change_identity},
      {SYS_setregid, change_identity},
      {SYS_setresuid, change_identity},
      {SYS_setresgid, change_identity},
      {SYS_setfsuid, change_identity},
      {SYS_setfsgid, change_identity},
      {SYS_kill, kill},
      {SYS_tkill, tkill},
      {SYS_tgkill, tgkill},
      {SYS_rt_sigqueueinfo, rt_sigqueueinfo},
      {SYS_rt_tgsigqueueinfo, rt_tgsigqueueinfo},
      {SYS_pidfd_send_signal, pidfd_send_signal},
      {SYS_wait4, wait4},
      {SYS_waitid, waitid},
  };
  return all;
}

}  // namespace
}  // namespace call_effects

namespace {

Effect effect_of(const SyscallRow& row) {
  for (const auto* const table : {&call_effects::effects(), &attribute_effects()}) {
    auto found = table->find({row.number, row.command});
    if (found == table->end()) found = table->find(row.number);
    if (found != table->end()) return found->second;
  }
  return row.new_descriptor == NewDescriptor::none ? nullptr
                                                   : call_effects::descriptor_made<OpenObject::Kind::other, -1>;
}

}  // namespace

bool has_effects(const Event& call) {
  const SyscallRow* const row = find_row(call.number, call.args);
  const Effect effect = row ? effect_of(*row) : nullptr;
  const bool reports_nothing = effect == call_effects::epoll_wait && call.result == 0;
  return call.result >= 0 && effect && effect != leaves_nothing && !reports_nothing;
}

bool is_decided(const SyscallRow& row) { return effect_of(row); }

void apply_effects(const FinishedCall& call) {
  const SyscallRow* const row = find_row(call.event.number, call.event.args);
  if (const Effect effect = row ? effect_of(*row) : nullptr) effect(call);
}

}  // namespace redrive
