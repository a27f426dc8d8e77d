#include "checkpoint/restore.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <set>

#include "base/procfs.h"
#include "checkpoint/address_space.h"

namespace redrive {
namespace {

// Maps all of a stub's memory, then fills it.
class StubFiller final : public ProcessMaker {
 public:
  static Result<std::unique_ptr<ProcessMaker>> begin(const ProcessPlan& plan) {
    ASSIGN_OR_RETURN(Stub stub, Stub::spawn(plan.tier));
    StubCalls calls(stub, stub.pid());
    for (const auto& mapping : plan.state.mappings) TRY(map(calls, mapping, plan.shared, plan.file_path));
    TRY(calls.run());
    return std::unique_ptr<ProcessMaker>(new StubFiller(std::move(stub)));
  }
  Result<void> fill(std::span<const MemoryPiece> pieces) override {
    if (!stub_.memory().write(pieces)) return errno_error("cannot fill restored memory");
    return {};
  }
  Result<Made> finish() override { return Made{std::move(stub_), {}}; }

 private:
  explicit StubFiller(Stub stub) : stub_(std::move(stub)) {}
  Stub stub_;
};

using ProcessMakers = std::map<uint32_t, std::unique_ptr<ProcessMaker>>;  // by process serial

// Puts pages into processes and shared objects; adjacent pages are written as one piece.
class PageFiller {
 public:
  PageFiller(const UnitState& state, const ProcessMakers& makers, SharedObjects& shared)
      : state_(state), makers_(makers), shared_(shared) {}

  Result<void> fill(std::span<const PageRef> pages) {
    for (const auto& page : pages) {
      TRY(enter(page));
      if (mapping_->shows_copy()) continue;
      if (mapping_->shows_object()) {
        TRY(shared_.write(mapping_->shared_object, mapping_->offset + (page.address - mapping_->start), page.data,
                          kPageSize));
        continue;
      }
      auto* data = const_cast<uint8_t*>(page.data);  // only read from
      if (!pieces_.empty() && pieces_.back().address + pieces_.back().size == page.address &&
          pieces_.back().data + pieces_.back().size == data) {
        pieces_.back().size += kPageSize;
      } else {
        if (pieces_.size() == kMaxPieces) TRY(flush());
        pieces_.push_back({page.address, data, kPageSize});
      }
    }
    return flush();
  }

 private:
  static constexpr size_t kMaxPieces = 1024;

  // Finds the process and the mapping of a page.
  Result<void> enter(const PageRef& page) {
    if (!process_ || process_->process != page.process) {
      TRY(flush());
      const auto found = std::find_if(state_.processes.begin(), state_.processes.end(),
                                      [&](const ProcessState& p) { return p.process == page.process; });
      process_ = found == state_.processes.end() ? nullptr : &*found;
      mapping_ = nullptr;
    }
    if (process_ && !(mapping_ && mapping_->start <= page.address && page.address < mapping_->end)) {
      const auto found = std::upper_bound(process_->mappings.begin(), process_->mappings.end(), page.address,
                                          [](Address a, const Mapping& m) { return a < m.end; });
      mapping_ = found != process_->mappings.end() && found->start <= page.address ? &*found : nullptr;
    }
    if (!process_ || !mapping_) return Error{"the image holds a page outside every mapping", Status::damaged};
    return {};
  }

  Result<void> flush() {
    if (pieces_.empty()) return {};
    TRY(makers_.at(process_->process)->fill(pieces_));
    pieces_.clear();
    return {};
  }

  const UnitState& state_;
  const ProcessMakers& makers_;
  SharedObjects& shared_;
  const ProcessState* process_ = nullptr;  // process and mapping of the previous page
  const Mapping* mapping_ = nullptr;
  std::vector<MemoryPiece> pieces_;  // of process_
};

// Restores processes that run in the memory of others.
Result<void> restore_sharers(const UnitState& state, RestoredUnit& unit) {
  for (const auto& process : state.processes) {
    if (!process.memory_of) continue;
    const auto owner = unit.processes.find(*process.memory_of);
    if (owner == unit.processes.end()) return Error{"the image holds a process without memory", Status::damaged};
    const Stub& stub = owner->second.stub;
    ASSIGN_OR_RETURN(Stub made, stub.fork(stub.pid(), CLONE_VM));
    unit.processes.emplace(process.process, RestoredProcess{std::move(made), process.brk, process.pid,
                                                            process.memory_of, owner->second.descriptors});
  }
  return {};
}

Result<void> restore_threads(const UnitState& state, RestoredUnit& unit) {
  std::map<uint32_t, bool> leader_taken;
  for (const auto& thread : state.threads) {
    if (unit.threads.contains(thread.thread)) continue;
    const auto process = unit.processes.find(thread.process);
    if (process == unit.processes.end()) return Error{"the image holds a thread of no process", Status::damaged};
    const Stub& stub = process->second.stub;
    pid_t tid = stub.pid();
    if (std::exchange(leader_taken[thread.process], true)) {
      ASSIGN_OR_RETURN(tid, stub.add_thread(stub.pid()));
    }
    unit.threads[thread.thread] = tid;
  }
  // Registers come last, because making threads uses the leader's.
  for (const auto& thread : state.threads) {
    user_regs_struct regs = thread.regs;
    regs.orig_rax = ~0ull;  // the kernel must not restart a system call
    const pid_t tid = unit.threads.at(thread.thread);
    if (thread.read_implies_exec) TRY(let_read_imply_exec(unit.processes.at(thread.process).stub, tid, true));
    if (!set_regs(tid, regs)) return errno_error("cannot restore registers");
    if (!thread.xstate.empty() && !set_xstate(tid, thread.xstate))
      return errno_error("cannot restore the extended state");
  }
  return {};
}

}  // namespace

Result<SharedObjects::Object*> SharedObjects::at_least(uint64_t object, uint64_t size) {
  Object& entry = objects_[object];
  if (!entry.fd) entry.fd = Fd(memfd_create("shared memory", MFD_CLOEXEC));
  if (!entry.fd) return errno_error("cannot make shared memory");
  if (entry.size < size && !entry.sized) {
    if (ftruncate(entry.fd.get(), static_cast<off_t>(size)) != 0) return errno_error("cannot grow shared memory");
    entry.size = size;
  }
  return &entry;
}

Result<std::string> SharedObjects::path(uint64_t object, uint64_t size) {
  ASSIGN_OR_RETURN(const Object* entry, at_least(object, size));
  return descriptor_path(getpid(), static_cast<uint64_t>(entry->fd.get()));
}

Result<void> SharedObjects::write(uint64_t object, uint64_t offset, const void* data, size_t size) {
  ASSIGN_OR_RETURN(const Object* entry, at_least(object, offset + size));
  if (pwrite(entry->fd.get(), data, size, static_cast<off_t>(offset)) != static_cast<ssize_t>(size)) {
    return errno_error("cannot fill shared memory");
  }
  return {};
}

Result<void> SharedObjects::resize(uint64_t object, uint64_t size) {
  ASSIGN_OR_RETURN(Object* const entry, at_least(object, 0));
  struct stat info {};
  // To set the size that it has would clear what its last page holds beyond it.
  const bool has_it = fstat(entry->fd.get(), &info) == 0 && static_cast<uint64_t>(info.st_size) == size;
  if (!has_it && ftruncate(entry->fd.get(), static_cast<off_t>(size)) != 0) {
    return errno_error("cannot resize shared memory");
  }
  entry->size = size;
  entry->sized = true;
  return {};
}

Result<void> SharedObjects::clear(uint64_t object, uint64_t offset, uint64_t length) {
  ASSIGN_OR_RETURN(const Object* entry, at_least(object, 0));
  constexpr int kHow = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  if (length == 0 || fallocate(entry->fd.get(), kHow, static_cast<off_t>(offset), static_cast<off_t>(length)) == 0) {
    return {};
  }
  return errno_error("cannot clear shared memory");
}

Result<void> SharedObjects::fill(uint64_t object, uint64_t offset, uint64_t length, const std::string& path) {
  constexpr size_t kAtOnce = 1 << 20;
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return errno_error("cannot open " + path);
  Bytes buffer;
  for (const FileRange& range : data_ranges(file.get(), offset, offset + length)) {
    for (uint64_t at = range.start; at < range.end;) {
      buffer.resize(std::min<uint64_t>(kAtOnce, range.end - at));
      const ssize_t got = pread(file.get(), buffer.data(), buffer.size(), static_cast<off_t>(at));
      if (got < 0) return errno_error("cannot read " + path);
      if (got == 0) break;
      TRY(write(object, at, buffer.data(), static_cast<size_t>(got)));
      at += static_cast<uint64_t>(got);
    }
  }
  return {};
}

std::optional<uint64_t> SharedObjects::object_of(uint64_t device, uint64_t inode) const {
  for (const auto& [object, entry] : objects_) {
    struct stat info {};
    if (fstat(entry.fd.get(), &info) == 0 && info.st_dev == device && info.st_ino == inode) return object;
  }
  return std::nullopt;
}

std::optional<uint64_t> SharedObjects::size_of(uint64_t object) const {
  const auto found = objects_.find(object);
  return found != objects_.end() && found->second.sized ? std::optional(found->second.size) : std::nullopt;
}

uint64_t SharedObjects::mapped_size(uint64_t object) const {
  const auto found = objects_.find(object);
  return found == objects_.end() ? 0 : found->second.size;
}

uint64_t SharedObjects::take_copy(uint64_t object) {
  const auto shown = copies_.extract(object);
  return shown.empty() ? 0 : shown.mapped();
}

uint64_t SharedObjects::shows(uint64_t file) const {
  const auto found =
      std::find_if(copies_.begin(), copies_.end(), [&](const auto& copy) { return copy.second == file; });
  return found == copies_.end() ? 0 : found->first;
}

namespace {

Result<void> map_memory(Calls& calls, const Mapping& mapping, SharedObjects& shared, const FilePath& file_path) {
  if (mapping.shows_object()) {
    ASSIGN_OR_RETURN(const std::string path, shared.path(mapping.shared_object, mapping.offset + mapping.length()));
    return calls.map_file(path, mapping.start, mapping.length(), mapping.protection, MAP_SHARED, mapping.offset);
  }
  if (mapping.file) {
    ASSIGN_OR_RETURN(const std::string path, file_path(mapping.file));
    if (mapping.shared_object) shared.show_copy(mapping.shared_object, mapping.file);
    const int sharing = mapping.shared_object ? MAP_SHARED_VALIDATE : MAP_PRIVATE;
    return calls.map_file(path, mapping.start, mapping.length(), mapping.protection, sharing, mapping.offset);
  }
  const int growth = mapping.is_stack() ? MAP_GROWSDOWN | MAP_STACK : 0;
  return calls.map_anonymous(mapping.start, mapping.length(), mapping.protection, MAP_PRIVATE | MAP_NORESERVE | growth);
}

}  // namespace

Result<void> map(Calls& calls, const Mapping& mapping, SharedObjects& shared, const FilePath& file_path) {
  TRY(map_memory(calls, mapping, shared, file_path));
  for (const int advice : kForkAdvice) {
    if (!mapping.advised(advice)) continue;
    TRY(calls.add("give advice for memory in a stub", SYS_madvise,
                  {mapping.start, mapping.length(), static_cast<uint64_t>(advice)}));
  }
  return {};
}

namespace {

// Checks what everything else here relies on.
bool is_consistent(const UnitState& state) {
  std::set<uint32_t> processes, threads;
  for (const auto& process : state.processes) {
    const bool has_memory = !process.mappings.empty() || !process.descriptors.empty();
    if (!processes.insert(process.process).second || (process.memory_of && has_memory)) return false;
  }
  return std::all_of(state.threads.begin(), state.threads.end(),
                     [&](const ThreadState& thread) { return threads.insert(thread.thread).second; });
}

// The pages of a process's own memory, in ascending order.
std::vector<Address> own_pages(const UnitState& state, const ProcessState& process, std::span<const PageRef> stored) {
  std::vector<Address> pages;
  const auto add = [&](uint32_t of, Address address) {
    const Mapping* const mapping = of == process.process ? mapping_at(process.mappings, address) : nullptr;
    if (mapping && !mapping->shared_object) pages.push_back(address);
  };
  for (const PageRef& page : stored) add(page.process, page.address);
  for (const auto& page : state.zero_pages) add(page.process, page.address);
  std::sort(pages.begin(), pages.end());
  pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
  return pages;
}

std::vector<uint32_t> threads_of(const UnitState& state, uint32_t process) {
  std::vector<uint32_t> threads;
  for (const auto& thread : state.threads) {
    if (thread.process == process) threads.push_back(thread.thread);
  }
  return threads;
}

Result<void> finish(const UnitState& state, const ProcessState& process, ProcessMaker& maker, RestoredUnit& unit) {
  ASSIGN_OR_RETURN(ProcessMaker::Made made, maker.finish());
  const auto threads = threads_of(state, process.process);
  for (size_t i = 0; i < made.threads.size() && i < threads.size(); ++i) unit.threads[threads[i]] = made.threads[i];
  made.stub.limit_stack(process.stack_limit);
  for (const auto& [entry, descriptor] : process.descriptors) {
    TRY(made.stub.describe(made.stub.pid(), descriptor));
  }
  unit.processes.emplace(
      process.process,
      RestoredProcess{
          std::move(made.stub), process.brk, process.pid, {}, std::make_shared<LocalDescriptors>(process.descriptors)});
  return {};
}

}  // namespace

Result<RestoredUnit> restore(const UnitState& state, const ReadPages& read_pages, const FilePath& file_path,
                             const StubTier& tier, RestoreEngine* engine, std::span<const PageRef> stored) {
  if (!is_consistent(state))
    return Error{"the processes and threads of the image contradict each other", Status::damaged};
  RestoredUnit unit;
  std::deque<ProcessPlan> plans;
  ProcessMakers makers;
  for (const auto& process : state.processes) {
    if (process.memory_of) continue;
    for (const auto& mapping : process.mappings) {
      if (mapping.object_size) TRY(unit.shared.resize(mapping.shared_object, *mapping.object_size));
    }
    ProcessPlan& plan = plans.emplace_back(
        ProcessPlan{process, threads_of(state, process.process).size(), {}, unit.shared, file_path, tier});
    if (engine) plan.pages = own_pages(state, process, stored);
    ASSIGN_OR_RETURN(makers[process.process], engine ? engine->begin(plan) : StubFiller::begin(plan));
  }
  PageFiller filler(state, makers, unit.shared);
  TRY(read_pages([&](std::span<const PageRef> pages) { return filler.fill(pages); }));
  static constexpr uint8_t kZeros[kPageSize] = {};
  std::vector<PageRef> zero_pages;
  for (const auto& page : state.zero_pages) zero_pages.push_back({page.process, page.address, kZeros});
  TRY(filler.fill(zero_pages));
  for (const ProcessPlan& plan : plans) TRY(finish(state, plan.state, *makers.at(plan.state.process), unit));
  TRY(restore_sharers(state, unit));
  TRY(restore_threads(state, unit));
  return unit;
}

}  // namespace redrive
