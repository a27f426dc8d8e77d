#include "checkpoint/restore.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace redrive {
namespace {

// Gathers adjacent pages, so that they reach the stub in few writes.
class PageWriter {
 public:
  PageWriter(const UnitState& state, RestoredUnit& unit) : state_(state), unit_(unit) {}

  Result<void> add(const StoredPage& page) {
    if (pending_.size() >= kMaxPending || page.process != process_ || page.address != start_ + pending_.size()) {
      TRY(flush());
      process_ = page.process;
      start_ = page.address;
    }
    pending_.insert(pending_.end(), page.data, page.data + kPageSize);
    return {};
  }

  Result<void> flush() {
    for (size_t done = 0; done < pending_.size();) {
      const Mapping* mapping = find(start_ + done);
      if (!mapping) return Error{"the image holds a page outside every mapping", Status::damaged};
      const size_t size = std::min<uint64_t>(pending_.size() - done, mapping->end - (start_ + done));
      if (mapping->shared_object) {
        TRY(unit_.shared.write(mapping->shared_object, mapping->offset + (start_ + done - mapping->start),
                               pending_.data() + done, size));
      } else if (!unit_.processes.at(process_).stub.memory().write(start_ + done, pending_.data() + done, size)) {
        return errno_error("cannot fill restored memory");
      }
      done += size;
    }
    pending_.clear();
    return {};
  }

 private:
  static constexpr size_t kMaxPending = 256 * kPageSize;

  const Mapping* find(Address address) const {
    for (const auto& process : state_.processes) {
      if (process.process != process_) continue;
      auto it = std::upper_bound(process.mappings.begin(), process.mappings.end(), address,
                                 [](Address a, const Mapping& m) { return a < m.end; });
      if (it != process.mappings.end() && it->start <= address) return &*it;
    }
    return nullptr;
  }

  const UnitState& state_;
  RestoredUnit& unit_;
  uint32_t process_ = 0;
  Address start_ = 0;
  Bytes pending_;
};

Result<void> restore_threads(const UnitState& state, RestoredUnit& unit) {
  std::map<uint32_t, bool> leader_taken;
  for (const auto& thread : state.threads) {
    const auto process = unit.processes.find(thread.process);
    if (process == unit.processes.end()) return Error{"the image holds a thread of no process", Status::damaged};
    const Stub& stub = process->second.stub;
    pid_t tid = stub.pid();
    if (std::exchange(leader_taken[thread.process], true)) {
      constexpr uint64_t kThread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
      ASSIGN_OR_RETURN(tid, stub.clone(stub.pid(), kThread));
    }
    unit.threads[thread.thread] = tid;
  }
  // Registers last: making threads uses the leader's.
  for (const auto& thread : state.threads) {
    user_regs_struct regs = thread.regs;
    regs.orig_rax = ~0ull;  // whatever the kernel thinks of restarting a syscall, there is none
    const pid_t tid = unit.threads.at(thread.thread);
    if (!set_regs(tid, regs)) return errno_error("cannot restore registers");
    if (!thread.xstate.empty() && !set_xstate(tid, thread.xstate))
      return errno_error("cannot restore the extended state");
  }
  return {};
}

}  // namespace

Result<SharedObjects::Object*> SharedObjects::at_least(uint64_t object, uint64_t size) {
  Object& entry = objects_[object];
  if (!entry.fd) entry.fd = Fd(memfd_create("redrive-shared", MFD_CLOEXEC));
  if (!entry.fd) return errno_error("cannot make shared memory");
  if (entry.size < size) {
    if (ftruncate(entry.fd.get(), static_cast<off_t>(size)) != 0) return errno_error("cannot grow shared memory");
    entry.size = size;
  }
  return &entry;
}

Result<std::string> SharedObjects::path(uint64_t object, uint64_t size) {
  ASSIGN_OR_RETURN(const Object* entry, at_least(object, size));
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(entry->fd.get());
}

Result<void> SharedObjects::write(uint64_t object, uint64_t offset, const void* data, size_t size) {
  ASSIGN_OR_RETURN(const Object* entry, at_least(object, offset + size));
  if (pwrite(entry->fd.get(), data, size, static_cast<off_t>(offset)) != static_cast<ssize_t>(size)) {
    return errno_error("cannot fill shared memory");
  }
  return {};
}

Result<void> map(const Stub& stub, pid_t tid, const Mapping& mapping, SharedObjects& shared,
                 const FilePath& file_path) {
  if (mapping.shared_object) {
    ASSIGN_OR_RETURN(const std::string path, shared.path(mapping.shared_object, mapping.offset + mapping.length()));
    return stub.map_file(tid, path, mapping.start, mapping.length(), mapping.protection, MAP_SHARED, mapping.offset);
  }
  if (mapping.file) {
    ASSIGN_OR_RETURN(const std::string path, file_path(mapping.file));
    return stub.map_file(tid, path, mapping.start, mapping.length(), mapping.protection, MAP_PRIVATE, mapping.offset);
  }
  const int growth = mapping.is_stack() ? MAP_GROWSDOWN | MAP_STACK : 0;
  return stub.map_anonymous(tid, mapping.start, mapping.length(), mapping.protection,
                            MAP_PRIVATE | MAP_NORESERVE | growth);
}

Result<RestoredUnit> restore(const UnitState& state, const NextPage& next_page, const FilePath& file_path) {
  RestoredUnit unit;
  for (const auto& process : state.processes) {
    ASSIGN_OR_RETURN(Stub stub, Stub::spawn());
    for (const auto& mapping : process.mappings) {
      TRY(map(stub, stub.pid(), mapping, unit.shared, file_path));
    }
    unit.processes.emplace(process.process, RestoredProcess{std::move(stub), process.brk});
  }
  PageWriter writer(state, unit);
  for (StoredPage page;;) {
    ASSIGN_OR_RETURN(const bool more, next_page(page));
    if (!more) break;
    TRY(writer.add(page));
  }
  static constexpr uint8_t kZeros[kPageSize] = {};
  for (const auto& page : state.zero_pages) TRY(writer.add({page.process, page.address, kZeros}));
  TRY(writer.flush());
  TRY(restore_threads(state, unit));
  return unit;
}

}  // namespace redrive
