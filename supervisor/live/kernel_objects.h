// What the kernel held for the processes of a recording, as far as their events tell: open files, pipes, sockets,
// descriptors, signal actions, threads and so on.
//
// Plain data. Events do not hold the memory that calls have read: where it matters (paths, addresses, masks), there is
// the event of the call, whose inputs somebody else finds out (WantedInputs).
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "logstore/event.h"

namespace redrive {

// The family of an address (socket(2)); AF_UNSPEC if there is none.
inline int family_of(const Bytes& address) {
  sa_family_t family = AF_UNSPEC;
  if (address.size() >= sizeof family) std::memcpy(&family, address.data(), sizeof family);
  return family;
}

// A directory, by the calls that have led to it.
struct Directory {
  EventRef call;                          // chdir, or the open of fchdir's directory
  int64_t number = 0;                     // of that call; 0: the recording's working directory
  uint64_t path = 0;                      // which of its arguments is the path
  std::shared_ptr<const Directory> base;  // where its path begins, if it is relative; null for the first
  size_t names_before = 0;                // how many names had changed when it was opened
};
using DirectoryRef = std::shared_ptr<const Directory>;

// A system call of the past, as its event has it.
struct PastCall {
  EventRef event;
  int64_t number = 0;
  std::array<uint64_t, 6> args{};
  int64_t result = 0;
  uint64_t at_ns = 0;  // on the recording host's CLOCK_MONOTONIC; 0: not known
};

// A call that has changed which files names mean: unlink(2), rmdir(2), rename(2), link(2) and the like.
struct NameChange {
  PastCall call;
  DirectoryRef from, to;  // where its paths begin, if they are relative
};

using ObjectNumber = size_t;

// What a call has done to a file: put bytes there, or made it `offset` bytes long (`length` is 0).
struct ContentChange {
  EventRef call;
  int64_t number = 0;  // of the call
  uint64_t offset = 0;
  uint64_t length = 0;
};

// A message that its receiver takes as a whole, also if it is empty.
struct SentPacket {
  EventRef send;
  uint64_t offset = 0;  // in what the call has sent (sendmmsg(2))
  uint64_t length = 0;
  uint64_t at_ns = 0;
};

// An open file description (open(2)).
struct OpenObject {
  enum class Kind : uint8_t {
    inherited,  // the program had it when it was started, with this number
    file,       // whatever open(2) has opened
    pipe,
    socket,
    eventfd,
    epoll,
    timerfd,
    signalfd,
    memfd,
    other,  // it cannot be made again
  };
  Kind kind = Kind::other;
  PastCall made;
  uint64_t flags = 0;        // O_*, as far as F_SETFL changes them
  bool nonblocking = false;  // set by FIONBIO or the flags
  // file
  DirectoryRef base;
  std::optional<uint64_t> offset;  // bytes, or what the file system calls the place in a directory; none: unknown
  uint64_t path_hash = 0;          // of what open(2) has read
  uint64_t times_changed = 0;      // how many calls through this description have changed it
  // How long the calls through this description have made it and what they have done, as if it had been empty when it
  // was opened; none: something has happened to it that cannot be known. What others do to it is not in here.
  std::optional<uint64_t> length = 0;
  std::vector<ContentChange> content;
  bool was_empty = false;   // when it was opened
  int lock = 0;             // flock(2): LOCK_SH, LOCK_EX; 0: none
  bool mapped = false;      // shared, and so changed without calls
  size_t names_before = 0;  // how many names had changed when it was opened
  std::optional<PastCall> last_read;
  std::optional<int> terminal;     // it is the master of this pseudoterminal (pty(7))
  std::optional<int> terminal_of;  // it is the other end of this one, opened by its master (TIOCGPTPEER)
  uint64_t last_read_at = 0;       // offset
  // inherited
  int number = -1;
  // pipe: 0 the reading end, 1 the writing end. Sockets of a pair: 0, 1.
  int end_number = 0;
  std::optional<ObjectNumber> peer;  // the other end
  uint64_t capacity = 0;             // F_SETPIPE_SZ (fcntl(2)); 0: the usual one
  uint64_t read_bytes = 0, written_bytes = 0;
  uint64_t out_channel = 0, in_channel = 0;  // 0: not known
  // socket
  std::vector<PastCall> settings;  // bind, setsockopt, ioctl
  std::optional<PastCall> listens, connects;
  int32_t peer_id = 0;  // what SO_PEERCRED (unix(7)) tells the other end; 0: not known
  std::optional<ObjectNumber> accepted_from;
  Bytes peer_address;            // as accept, getpeername returned it
  Bytes own_address;             // as getsockname returned it
  std::set<EventRef> datagrams;  // the sends of those that it has received
  std::array<bool, 2> shut{};    // for reading, for writing
  // A socket that keeps messages apart: what was sent through it, and the calls that have received a message, or
  // learnt that no more will come, in their order.
  std::vector<SentPacket> packets;
  std::vector<EventRef> packet_receipts;
  // eventfd: writes since it was read; timerfd, signalfd: the last setting.
  std::vector<PastCall> changes;
  uint64_t expirations = 0;  // timerfd: how many were read since that
  // eventfd: which units have read or written it. If there are several, nothing tells in which order: it is refused.
  std::set<UnitId> users;
  std::map<int, PastCall> watched;  // epoll: by descriptor, the last EPOLL_CTL_ADD or MOD
  std::map<int, ObjectNumber> watched_objects;
  uint64_t watch_changes = 0;                // how often it was told what to watch
  std::map<int, uint64_t> watched_since;     // by descriptor: after how many of these
  std::map<uint64_t, uint64_t> reported_at;  // by what it says (epoll_data): the same, when it said it last

  // The length of a file, if it is known.
  std::optional<uint64_t> known_length() const { return was_empty ? length : std::nullopt; }
};

struct Descriptor {
  ObjectNumber object = 0;
  bool close_on_exec = false;
};
using DescriptorTable = std::map<int, Descriptor>;

// A call that has set something, which a process that lives makes again.
struct RepeatedCall {
  PastCall call;
  uint64_t what = 0;                              // which of several attributes that calls of this number set
  bool in_children = false, in_programs = false;  // whether children have it, too, and other programs
};

// A change of a thread's signal mask: by a call, or by a handler that began to run.
struct MaskChange {
  std::optional<PastCall> call;
  std::optional<uint64_t> known;  // the mask itself
  int handled = 0;                // the signal whose handler began
  std::optional<PastCall> action;
};

// A signal on its way, as its receiver's siginfo_t will say.
struct PendingSignal {
  int number = 0;
  int code = 0;  // si_code
  int32_t sender = 0;
  int32_t status = 0;              // SIGCHLD
  std::optional<PastCall> queued;  // a call that has given all of its siginfo_t (rt_sigqueueinfo(2))
};

// Signals that were sent to a process or a thread and have not arrived, the oldest first. Of those before the real-time
// signals, there is at most one each (signal(7)).
class PendingSignals {
 public:
  void add(PendingSignal signal) {
    constexpr int kFirstRealTime = 32;
    if (signal.number >= kFirstRealTime || find(signal.number) == all_.end()) all_.push_back(signal);
  }
  bool take(int number) {  // false: none is pending
    const auto found = find(number);
    if (found == all_.end()) return false;
    all_.erase(found);
    return true;
  }
  void clear() { all_.clear(); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

 private:
  std::vector<PendingSignal>::iterator find(int number) {
    return std::find_if(all_.begin(), all_.end(), [&](const PendingSignal& its) { return its.number == number; });
  }
  std::vector<PendingSignal> all_;
};

struct ThreadModel {
  ProcessSerial process = 0;
  int32_t tid = 0;  // as the program knows it; 0: the number of its process
  std::vector<MaskChange> mask;
  std::vector<std::vector<MaskChange>> masks_before_handlers;
  std::optional<PastCall> alternate_stack, name, born;
  std::vector<RepeatedCall> repeated;
  uint64_t robust_list = 0, robust_length = 0;
  uint64_t clear_tid = 0;
  int64_t interrupted = -1;  // the last call that restart_syscall(2) continues
  PendingSignals pending;
};

// A timer of a process, which sends it signals (setitimer(2), alarm(2)).
struct TimerModel {
  PastCall set;
  bool signalled = false;  // a signal of it has arrived since
};

struct ActionModel {
  PastCall call;
  bool program_changed = false;  // since then, which has taken handlers away
};

struct ProcessModel {
  int32_t pid = 0;
  std::optional<std::pair<UnitId, ProcessSerial>> parent;
  std::shared_ptr<DescriptorTable> descriptors = std::make_shared<DescriptorTable>();
  std::shared_ptr<DirectoryRef> directory = std::make_shared<DirectoryRef>();
  std::shared_ptr<int64_t> umask = std::make_shared<int64_t>(-1);  // -1: as it was when the recording began
  std::map<int, ActionModel> actions;
  std::map<uint64_t, PastCall> limits;    // by resource
  std::map<uint64_t, TimerModel> timers;  // ITIMER_REAL and so on
  std::vector<PastCall> identities;       // setuid and the like
  std::vector<RepeatedCall> repeated;
  std::map<std::string, bool> lost;  // which calls have set what is not made again, and whether children have that, too
  std::map<std::pair<int, int64_t>, PastCall>
      ipc;                 // System V semaphores and queues: by the call that makes them, and id
  PendingSignals pending;  // for any of its threads
  bool leads_session = false;
  int32_t group = 0;       // 0: as it was when the recording began
  std::string not_remade;  // why it cannot live again; empty if it can
  bool ended = false;
  bool waited_for = false;
  bool may_be_stopped = false;  // by a signal
  bool has_continued = false;   // ... and then was, by SIGCONT, of which no wait has told (WCONTINUED)
  int32_t wait_status = 0;      // of one that has ended
};

}  // namespace redrive
