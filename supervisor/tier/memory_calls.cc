#include "supervisor/tier/memory_calls.h"

#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#include <algorithm>
#include <utility>

#include "checkpoint/address_space.h"
#include "supervisor/tier/registers.h"

namespace redrive {
Result<void> replay_object_change(const ObjectChange& change, SharedObjects& shared, const FilePath& file_path) {
  using Kind = ObjectChange::Kind;
  switch (change.kind) {
    case Kind::size:
      return shared.resize(change.object, change.offset);
    case Kind::zeros:
      return shared.clear(change.object, change.offset, change.length);
    case Kind::data:
      return shared.write(change.object, change.offset, change.data.data(), change.data.size());
    case Kind::file: {
      ASSIGN_OR_RETURN(const std::string path, file_path(change.file));
      return shared.fill(change.object, change.offset, change.length, path);
    }
  }
  return {};
}

int protection_asked(Special special, std::span<const uint64_t, 6> args) {
  if (special == Special::mmap || special == Special::mprotect) return static_cast<int>(args[2]);
  if (special != Special::shmat) return PROT_NONE;
  return PROT_READ | (args[2] & SHM_RDONLY ? 0 : PROT_WRITE) | (args[2] & SHM_EXEC ? PROT_EXEC : 0);
}

Result<void> replay_memory_call(const Event& event, Special special, const Stub& stub, Address& brk, Calls& calls,
                                SharedObjects& shared, const FilePath& file_path) {
  const auto& args = event.args;
  const bool failed = is_error(event.result);
  switch (special) {
    case Special::mmap:
    case Special::shmat: {
      if (failed || !event.map) return {};
      Mapping mapping;
      mapping.start = static_cast<Address>(event.result);
      mapping.end = mapping.start + event.map->length;
      mapping.protection = protection_asked(special, args);
      mapping.offset = event.map->offset;
      mapping.file = event.map->file;
      mapping.shared_object = event.map->shared_object;
      if (special == Special::mmap && (args[3] & MAP_GROWSDOWN)) mapping.name = "[stack]";
      return map(calls, mapping, shared, file_path);
    }
    case Special::shmdt: {
      if (failed) return {};
      // What is left of the segment that was attached there (shmat(2)); parts of it may be gone.
      const Address start = args[0];
      for (Address from = start;;) {
        ASSIGN_OR_RETURN(const auto first, mapped_from(stub.pid(), from));
        if (!first) return Error{"shmdt of memory that is not mapped"};
        from = first->end;
        if (!first->shared || first->start < start || first->start - first->offset != start) continue;
        const auto segment = shared.object_of(first->device, first->inode);
        if (!segment) continue;
        ASSIGN_OR_RETURN(const auto mappings, mappings_in(stub.pid(), {start, start + shared.mapped_size(*segment)}));
        for (const auto& mapping : mappings) {
          const bool its = mapping.device == first->device && mapping.inode == first->inode;
          if (its && mapping.start - mapping.offset == start) TRY(calls.unmap(mapping.start, mapping.length()));
        }
        return {};
      }
    }
    case Special::munmap:
      if (failed) return {};
      return calls.unmap(args[0], args[1]);
    case Special::mprotect:
      if (failed) return {};
      return calls.add("protect memory in a stub", SYS_mprotect, {args[0], args[1], args[2]});
    case Special::madvise:
      if (failed) return {};
      return calls.add("empty memory in a stub", SYS_madvise, {args[0], args[1], args[2]});
    case Special::mremap: {
      if (failed) return {};
      const auto target = static_cast<Address>(event.result);
      const uint64_t flags =
          target == args[0] ? args[3] & ~uint64_t{MREMAP_FIXED} : args[3] | MREMAP_MAYMOVE | MREMAP_FIXED;
      return calls.add("move memory in a stub", SYS_mremap, {args[0], args[1], args[2], flags, target});
    }
    case Special::brk: {
      const auto target = static_cast<Address>(event.result);
      const Address from = page_up(std::exchange(brk, target)), to = page_up(target);
      if (to > from) return calls.map_anonymous(from, to - from, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE);
      if (to < from) return calls.unmap(to, from - to);
      return {};
    }
    default:
      return {};
  }
}

bool may_have_changed(const Event& event, Special special) {
  if (!is_error(event.result)) return false;
  // No kernel answers this: the call, whose memory was in part the tier's, was refused.
  if (event.result == -ENODEV) return false;
  switch (special) {
    case Special::mprotect:
      return event.result != -EINVAL;  // that is checked first
    case Special::madvise:
      return event.args[2] == MADV_DONTNEED || event.args[2] == MADV_DONTNEED_LOCKED || event.args[2] == MADV_REMOVE;
    case Special::mremap:
      // Its target is unmapped first, if that is possible: not if it wraps around.
      return (event.args[3] & MREMAP_FIXED) && event.args[4] + page_up(event.args[2]) > event.args[4];
    default:
      return false;
  }
}

namespace {

// Makes the part of a failed call's changes that the event names. False if a call for that fails.
Result<bool> change_in_part(const Event& event, const Stub& stub, pid_t tid) {
  const auto& args = event.args;
  const uint64_t length = std::min(event.map->length, page_up(args[1]));
  if (event.number == SYS_mremap) {
    const Address source = args[0], target = args[4];
    ASSIGN_OR_RETURN(const auto mappings, mappings_in(stub.pid(), {source, source + length}));
    for (const Mapping& mapping : mappings) {
      const Address from = std::max(mapping.start, source), size = std::min(mapping.end, source + length) - from;
      constexpr uint64_t kFlags = MREMAP_MAYMOVE | MREMAP_FIXED;
      const Address to = target + (from - source);
      ASSIGN_OR_RETURN(const int64_t moved, stub.call(tid, SYS_mremap, {from, size, size, kFlags, to}));
      if (is_error(moved)) return false;
    }
    const uint64_t unmapped = std::min(event.map->offset, page_up(args[2]) - std::min(length, page_up(args[2])));
    if (unmapped == 0) return true;
    ASSIGN_OR_RETURN(const int64_t result, stub.call(tid, SYS_munmap, {target + length, unmapped}));
    return result == 0;
  }
  if (length == 0) return true;
  ASSIGN_OR_RETURN(const int64_t result, stub.call(tid, event.number, {args[0], length, args[2]}));
  return result == 0 || (event.number == SYS_madvise && result == -ENOMEM);  // there may be holes
}

}  // namespace

Result<void> replay_failed_memory_call(const Event& event, const Stub& stub, pid_t tid) {
  const auto& args = event.args;
  const Address start = args[0], end = start + page_up(args[1]);
  const auto fails_again = [&]() -> Result<bool> {
    ASSIGN_OR_RETURN(const int64_t result, stub.call(tid, event.number, {args[0], args[1], args[2], args[3], args[4]}));
    return result == event.result;
  };
  if (event.map) {
    ASSIGN_OR_RETURN(const bool changed, change_in_part(event, stub, tid));
    if (changed) return {};
  } else if (event.number != SYS_mremap) {
    ASSIGN_OR_RETURN(const auto mappings, mappings_in(stub.pid(), {start, end}));
    if (mappings.empty()) return {};
    Address reached = start;
    bool hole = false;
    for (const auto& mapping : mappings) {
      hole |= mapping.start > reached;
      reached = mapping.end;
    }
    hole |= reached < end;
    if (hole && event.result == -ENOMEM) {
      ASSIGN_OR_RETURN(const bool equal, fails_again());
      if (equal) return {};
    } else if (mappings.size() == 1) {
      return {};  // it changed all or nothing
    }
  } else if (end < start || start + args[1] < start) {
    // No kernel touches such a source. The target is what it may have unmapped.
    ASSIGN_OR_RETURN(const auto mapped, mapped_from(stub.pid(), args[4]));
    if (!mapped || mapped->start >= args[4] + page_up(args[2])) return {};
  } else {
    ASSIGN_OR_RETURN(const bool equal, fails_again());
    if (equal) return {};
  }
  return Error{std::string(syscall_name(event.number)) + " failed with " + std::string(error_name(event.result)) +
               " when it was recorded, and how much of its memory it had changed by then is not known"};
}

Result<bool> remap_pieces(const Event& event, const Stub& stub, Calls& calls) {
  const auto& args = event.args;
  const auto target = static_cast<Address>(event.result);
  const Address start = args[0], end = start + page_up(args[1]), new_end = start + page_up(args[2]);
  const auto first = mapping_of(stub.pid(), start);
  if (!first || first->end >= end || (target == start && new_end <= end)) return false;
  ASSIGN_OR_RETURN(const auto mappings, mappings_in(stub.pid(), {start, end}));
  const uint64_t flags = args[3] | MREMAP_MAYMOVE | MREMAP_FIXED;
  for (const auto& mapping : mappings) {
    const Address from = std::max(mapping.start, start), to = std::min(mapping.end, end);
    const Address new_to = to == end ? new_end : std::min(to, new_end);
    if (from >= to) continue;
    if (new_to <= from) {
      TRY(calls.unmap(from, to - from));
    } else if (target != start) {
      TRY(calls.add("move memory in a stub", SYS_mremap,
                    {from, to - from, new_to - from, flags, target + (from - start)}));
    } else if (to == end) {
      TRY(calls.add("resize memory in a stub", SYS_mremap, {from, to - from, new_to - from, 0, 0}));
    }
  }
  return true;
}

std::optional<LocalDescriptor> descriptor_written(std::span<const uint64_t, 6> args, const Memory& memory) {
  constexpr uint32_t kOlder = 1;
  return LocalDescriptor::read(memory, args[1], static_cast<uint32_t>(args[0]) == kOlder);
}

std::optional<bool> read_implies_exec_set_by(std::span<const uint64_t, 6> args, int64_t result) {
  constexpr uint32_t kAsks = 0xffffffff;
  if (is_error(result) || static_cast<uint32_t>(args[0]) == kAsks) return std::nullopt;
  return args[0] & READ_IMPLIES_EXEC;
}

std::optional<StackLimit> stack_limit_set_by(int64_t number, std::span<const uint64_t, 6> args, int64_t result) {
  if (result != 0) return std::nullopt;
  if (number == SYS_setrlimit && args[0] == RLIMIT_STACK) return StackLimit{0, args[1]};
  if (number == SYS_prlimit64 && args[1] == RLIMIT_STACK && args[2])
    return StackLimit{static_cast<int32_t>(args[0]), args[2]};
  return std::nullopt;
}

}  // namespace redrive
