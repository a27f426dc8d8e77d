// What is to be made of a cut through a recording: processes, threads, and the kernel's objects. Everything that had to
// be found out has been; nothing has been made.
#pragma once

#include <linux/time_types.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/user.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "logstore/event.h"
#include "supervisor/live/kernel_objects.h"
#include "supervisor/live/timers.h"

namespace redrive {

// A signal's action, as rt_sigaction(2) takes it.
struct KernelAction {
  uint64_t handler = 0;
  uint64_t flags = 0;
  uint64_t restorer = 0;
  uint64_t mask = 0;
};

// Bytes that were on their way: a datagram, or any part of a stream.
struct LiveMessage {
  Bytes bytes;
  bool urgent = false;               // the last byte (send(2), MSG_OOB)
  bool taken = false;                // ... which was received already, ahead of other bytes: reads stop at its place
  std::optional<ObjectNumber> from;  // a datagram: the socket that has sent it; none: it was closed since
  bool withheld = false;             // it comes when the message that is to be first has been received
};

struct LiveObject {
  OpenObject::Kind kind = OpenObject::Kind::other;
  bool needed = false;
  uint64_t flags = 0;  // O_*
  bool nonblocking = false;
  // file
  std::string path;
  bool nameless = false;  // `path` is the directory of a file that has no name
  Bytes content;          // of a file that is made anew
  bool fifo = false;
  bool terminal = false;                    // the master of a pseudoterminal
  std::optional<ObjectNumber> terminal_of;  // the other end of this one
  std::vector<Bytes> terminal_settings;     // struct termios
  std::optional<uint64_t> offset;
  std::optional<uint64_t> cut_to;  // the file is made that long
  int lock = 0;                    // flock(2)
  int number = -1;                 // inherited: which of ours
  uint64_t capacity = 0;           // of a pipe; 0: the usual one
  // pipe and connected sockets: what this end has still to receive
  std::optional<ObjectNumber> peer;
  int end_number = 0;  // of a connection: 0 the connecting end, 1 the accepted one
  std::vector<LiveMessage> arriving;
  // socket
  int domain = 0, type = 0, protocol = 0;
  struct Option {
    int level = 0, name = 0;
    Bytes value;
  };
  std::vector<Option> options;
  Bytes bound, own_address, peer_address;  // empty: none known
  std::optional<int> backlog;              // it listens
  int32_t peer_id = 0;                     // as OpenObject's
  std::vector<ObjectNumber> queued;        // connections that it has not accepted, in their order
  std::vector<LiveMessage> sent_ahead;     // by one of these
  bool connected = false;                  // without a peer: somebody outside, who is gone
  std::array<bool, 2> shut{};
  // eventfd, timerfd, signalfd
  uint64_t counter = 0;
  int clock = 0;
  std::optional<TimerSetting> timer;
  uint64_t mask = 0;
  std::map<int, epoll_event> watched;
  std::map<int, ObjectNumber> watched_objects;
};

// Whether something that it has to receive, or that it has sent ahead, is withheld.
inline bool holds_back(const LiveObject& object) {
  const auto withheld = [](const LiveMessage& message) { return message.withheld; };
  return std::any_of(object.arriving.begin(), object.arriving.end(), withheld) ||
         std::any_of(object.sent_ahead.begin(), object.sent_ahead.end(), withheld);
}

// A call that sets something. `memory`: what its argument `pointer` is to point to.
struct LiveCall {
  int64_t number = 0;
  std::array<uint64_t, 6> args{};
  std::optional<size_t> pointer;
  Bytes memory;
};

struct LiveThread {
  ThreadSerial serial = 0;
  int32_t tid = 0;
  user_regs_struct regs{};  // with which it continues
  Bytes xstate;
  uint64_t mask = 0;
  std::optional<stack_t> alternate_stack;
  uint64_t robust_list = 0, robust_length = 0;
  uint64_t clear_tid = 0;
  std::string name;
  std::vector<LiveCall> repeated;
  std::vector<siginfo_t> pending;
};

struct LiveProcess {
  UnitId unit = 0;
  ProcessSerial serial = 0;
  int32_t pid = 0;
  std::optional<size_t> parent;        // its index; none: whoever makes all
  std::optional<int32_t> wait_status;  // it has ended, and its parent has not waited for it
  bool leads_session = false;
  int32_t group = 0;
  std::map<int, Descriptor> descriptors;
  std::optional<std::string> directory;  // none: one that was removed
  std::optional<uint32_t> umask;
  std::map<uint64_t, rlimit> limits;
  uint64_t stack_limit = 0;
  std::map<int, KernelAction> actions;
  std::vector<LiveCall> repeated;
  std::map<uint64_t, itimerval> timers;
  std::vector<siginfo_t> pending;   // for any of its threads
  std::vector<LiveThread> threads;  // the first is the process's first
};

struct LiveSpec {
  std::vector<LiveProcess> processes;  // parents first
  std::vector<LiveObject> objects;
  // Where the message arrives that is to be received first; or the sender's end, of a connection that is not accepted
  // yet.
  std::optional<ObjectNumber> first;
  uint64_t clock_ns = 0;           // what CLOCK_MONOTONIC is to be; 0: the host's
  std::vector<std::string> notes;  // what will not be as it was: one line each
};

}  // namespace redrive
