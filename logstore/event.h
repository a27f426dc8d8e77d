// What a trace says of one unit's execution: its events, in the order in which they became visible to the unit.
//
// Plain data, and its encoding (encode/decode). The event number is the position in the unit's stream, from 0. A
// series of identical consecutive calls is one Event with repeat > 1 and has one number. In a cycle of calls, which are
// made in turn again and again, each call of the first round is an Event, and the last of these counts all calls that
// follow.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace redrive {

class RowReader;
class RowWriter;

using UnitId = uint32_t;  // from 1, in order of birth
using IntervalIndex = uint32_t;
using EventIndex = uint64_t;
using ThreadSerial = uint32_t;   // within a unit, from 0, never reused
using ProcessSerial = uint32_t;  // within a unit, from 0: units joined by shared memory or vfork have several

struct EventRef {
  UnitId unit = 0;
  EventIndex event = 0;
  auto operator<=>(const EventRef&) const = default;
};

enum class EventKind : uint8_t {
  syscall,  // entry and exit with no other event of the unit between them
  entry,    // a call that was entered while other threads of the unit continued; its exit is a later event
  exit,
  signal,      // a signal was delivered to a handler, or ended the process
  trap,        // a trapped instruction (rdtsc, rdtscp, cpuid) was answered
  preemption,  // a thread was stopped where it was
};

// How the place of a preemption is known, and what followed it (args[0] of the event).
enum class Preempted : uint64_t {
  // The event is the first of an interval, whose image says where:
  checkpoint,  // the thread continued
  turn,        // another thread of the unit had its turn, or a signal was delivered to this one
  // The thread had executed few instructions since its event before, and was at the event's ip for the time that
  // args[1] says:
  stepped,  // another thread of the unit had its turn
  // The same after any number of instructions, at one of a loop in which the thread waits. The hash is that of all
  // registers (comparable_registers_hash()).
  waiting,
};

// Where in its thread's execution a signal event happened (args[0] of the event).
enum class SignalPoint : uint64_t {
  boundary,        // right after the thread's previous event, before any user instruction
  before_syscall,  // at a syscall instruction that the thread was about to execute
  fault,           // at the instruction that caused it
  anywhere,        // it ended the process; the instruction is not known
};

// Which trapped instruction was answered (the number of a trap event).
enum class Trap : int32_t { rdtsc, rdtscp, cpuid };

// A change of memory by the kernel, other than by mapping.
struct MemoryWrite {
  enum class Kind : uint8_t {
    data,     // it wrote `data`
    message,  // it wrote the next `length` bytes of the event's received message, in order; `data` is empty
    // Changes to whole pages of private file mappings, because the file became longer or shorter; `data` is empty:
    zeros,       // they are zero now, and were beyond the file's end
    beyond_end,  // they are beyond the file's end now, and their contents are lost (mmap(2), SIGBUS)
  };
  uint64_t address = 0;
  uint64_t length = 0;
  Kind kind = Kind::data;
  Bytes data;
  bool from_message() const { return kind == Kind::message; }
  bool changes_pages() const { return kind == Kind::zeros || kind == Kind::beyond_end; }
  bool operator==(const MemoryWrite&) const = default;
};

// A part of a received message: bytes [offset, offset+length) of what the sender's event put into the channel.
struct MessagePart {
  EventRef sender;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t hash = 0;  // XXH3-64 of those bytes
  bool operator==(const MessagePart&) const = default;
};

struct Receive {
  uint64_t channel = 0;
  uint64_t arrival = 0;  // global arrival number
  uint64_t at_ns = 0;    // CPU time of the unit since its checkpoint
  bool logged = false;   // the payload is in the event's writes
  std::vector<MessagePart> parts;
  uint64_t length() const {
    uint64_t sum = 0;
    for (const auto& part : parts) sum += part.length;
    return sum;
  }
  bool operator==(const Receive&) const = default;
};

struct Send {
  uint64_t channel = 0;
  uint64_t length = 0;
  uint64_t at_ns = 0;
  bool operator==(const Send&) const = default;
};

// Where the contents of a mapping made by mmap or shmat come from when it is made again. A shared mapping names its
// object, which all mappings of that object in the unit show. As long as nobody can change the object, or has changed
// it, it also names the copy of the file that holds its contents.
struct MapSource {
  uint64_t file = 0;           // id of a file copy in the trace, 0 = none
  uint64_t offset = 0;         // bytes into that copy, or the object
  uint64_t shared_object = 0;  // nonzero: the number of the object that is mapped shared
  uint64_t length = 0;         // bytes mapped, page-rounded
  bool operator==(const MapSource&) const = default;
};

// A change of an object that the unit has mapped shared, other than by the unit's own instructions: what a new mapping
// shows of it, or what a call such as write(2) puts there. From then on, no file copy has its contents.
struct ObjectChange {
  enum class Kind : uint8_t {
    size,   // its size is `offset` from now on; contents beyond that are lost, and new ones are zero
    zeros,  // `length` bytes from `offset` on are zero
    data,   // ... equal `data`
    file,   // ... equal those at the same place in the trace's copy `file`
  };
  Kind kind = Kind::size;
  uint64_t object = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t file = 0;
  Bytes data;
  bool operator==(const ObjectChange&) const = default;
};

// What is kept of the hash of the registers that a system call preserves (preserved_registers_hash()): all of it where
// it has to tell one place from another, and a few bits at a call, where registers that differ are found at the next
// calls too.
struct RegistersHash {
  static constexpr uint32_t kShort = 0x3f;

  uint32_t mask = ~uint32_t{0};  // which bits are kept: all of them, or kShort
  uint32_t value = 0;
  static RegistersHash whole(uint32_t hash) { return {~uint32_t{0}, hash}; }
  static RegistersHash of_call(uint32_t hash) { return {kShort, hash & kShort}; }
  bool agrees(uint32_t hash) const { return (hash & mask) == value; }
  bool operator==(const RegistersHash&) const = default;
};

// The registers after an event that sets more of them than a system call's result: signal delivery, sigreturn, trapped
// instructions.
struct RegisterFile {
  Bytes general;  // user_regs_struct
  Bytes xstate;   // XSAVE area; empty if unchanged
  bool operator==(const RegisterFile&) const = default;
};

// When an event happened, on the recording host's CLOCK_MONOTONIC: not before `from_ns`, and not after `to_ns`. All are
// 0 if this is not known, as in traces up to format 10. A call's time is when its result had come; of a send that was
// served in process, when it began. A series has the time of its first call.
struct EventTime {
  uint64_t from_ns = 0, to_ns = 0;
  // The best guess, when it is read; not stored. It may be after `to_ns`, because guesses do not go back.
  uint64_t at_ns = 0;
  bool known() const { return to_ns > 0; }
  bool operator==(const EventTime&) const = default;
};

// The largest number of calls in a cycle.
inline constexpr uint32_t kLongestCycle = 8;

struct Event {
  EventKind kind = EventKind::syscall;
  ThreadSerial thread = 0;
  // How many calls the event stands for: its own, and repeat - 1 that followed. Those were the calls of the last
  // `cycle` events up to this one, in turn, the earliest first. The series may end anywhere in a round.
  uint64_t repeat = 1;
  uint32_t cycle = 1;
  int32_t number = 0;                 // syscall or signal number; for a trap a Trap
  std::array<uint64_t, 6> args{};     // syscall, entry: as entered
  uint64_t ip = 0;                    // instruction pointer at the event
  RegistersHash regs_hash;            // syscall, entry, preemption
  uint64_t in_hash = 0;               // syscall, entry: hash of the memory that the call reads (a send: with payload)
  int64_t result = 0;                 // syscall, exit; entry that makes a child: the child's number
  std::vector<MemoryWrite> writes;    // syscall, exit, signal
  std::vector<ObjectChange> changes;  // syscall, exit: in this order, before the call's other effects
  std::optional<Receive> receive;
  std::optional<Send> send;  // of a fork that makes a unit: without bytes or channel, for its time
  // If a call failed after it had changed a part of its memory, and it is known which: the length says how many bytes
  // from its start on. An mremap(2) had moved these, and had unmapped as many bytes of the target after them as the
  // offset says.
  std::optional<MapSource> map;
  std::optional<RegisterFile> registers;
  UnitId child_unit = 0;          // fork, vfork, clone: the unit born here (0: a thread or process of this unit)
  ThreadSerial child_thread = 0;  // ... its first thread's serial, if it belongs to this unit
  // ... what calls of other threads that were still in progress may have written into the memory that it got.
  std::vector<MemoryWrite> child_writes;
  bool fatal = false;  // signal: it ended the process; syscall, entry, exit: the call ended its thread or its process
  EventTime time;      // encoded apart from the rest (event_times.h)

  // Makes it a new event that reuses the same memory.
  void clear();
  bool operator==(const Event&) const = default;
};

void encode(const Event& event, RowWriter& out);  // as one row
// Reads exactly one event. False if the bytes are not an event.
bool decode(RowReader& in, Event& event);
// The same, as events were encoded up to format 8.
bool decode(Decoder& in, Event& event);

}  // namespace redrive
