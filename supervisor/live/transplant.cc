#include "supervisor/live/transplant.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "checkpoint/address_space.h"
#include "checkpoint/auxiliary_vector.h"
#include "checkpoint/stub.h"
#include "interceptors/syscall_table.h"
#include "interceptors/trapped_instructions.h"

namespace redrive {
namespace {

constexpr uint64_t kGateSize = 2 * kPageSize;
constexpr uint64_t kUserEnd = 0x7ffffffff000;
constexpr long kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;

bool equal_files(const std::string& a, const std::string& b) {
  struct stat one {
  }, other{};
  if (stat(a.c_str(), &one) != 0 || stat(b.c_str(), &other) != 0 || one.st_size != other.st_size) return false;
  if (one.st_dev == other.st_dev && one.st_ino == other.st_ino) return true;
  std::ifstream first(a, std::ios::binary), second(b, std::ios::binary);
  constexpr size_t kAtOnce = 1 << 20;
  Bytes left(kAtOnce), right(kAtOnce);
  while (first && second) {
    first.read(reinterpret_cast<char*>(left.data()), kAtOnce);
    second.read(reinterpret_cast<char*>(right.data()), kAtOnce);
    const auto size = static_cast<size_t>(first.gcount());
    if (first.gcount() != second.gcount() || std::memcmp(left.data(), right.data(), size) != 0) return false;
  }
  return true;
}

bool is_heap(const Mapping& mapping, Address brk) {
  return !mapping.file && !mapping.shared && brk > mapping.start && page_up(brk) == mapping.end;
}

}  // namespace

Result<std::string> MappedPaths::of(uint64_t file) {
  if (const auto known = paths_.find(file); known != paths_.end()) return known->second;
  const auto record = trace_.files().find(file);
  if (record == trace_.files().end()) return Error{"a file that was mapped is not in the trace", Status::damaged};
  ASSIGN_OR_RETURN(const std::string copy, trace_.file_path(file));
  copies_[file] = copy;
  const std::string& path = record->second.path;
  if (equal_files(path, copy)) return paths_[file] = path;
  changed_.push_back(path);
  if (!images_) return paths_[file] = copy;
  ASSIGN_OR_RETURN(paths_[file], images_->add_mapped(copy, path));
  return paths_[file];
}

Result<Transplant> Transplant::begin(pid_t pid) {
  int status = 0;
  if (!seize(pid, kOptions) || !interrupt(pid) || !wait_for(pid, status) || !WIFSTOPPED(status)) {
    return errno_error("cannot trace a process that is to live");
  }
  ASSIGN_OR_RETURN(Memory memory, Memory::open(pid));
  Transplant made(pid, std::move(memory));
  made.tids_.push_back(pid);
  TRY(made.forget_sequences());
  return made;
}

// Its area for restartable sequences (rseq(2)), which our own C library has registered, is about to be unmapped.
Result<void> Transplant::forget_sequences() {
  constexpr uint64_t kUnregister = 1;  // RSEQ_FLAG_UNREGISTER
  const auto area = rseq_area(pid_);
  if (!area) return {};
  LiveCalls calls(pid_, memory_);
  TRY(calls.must("give up restartable sequences", SYS_rseq,
                 {area->address, area->length, kUnregister, area->signature}));
  return {};
}

// ---- Memory

Result<int> Transplant::open(const std::string& path, int flags) {
  LiveCalls calls(pid_, memory_);
  ASSIGN_OR_RETURN(const uint64_t name, calls.put(path.c_str(), path.size() + 1));
  ASSIGN_OR_RETURN(const int64_t fd, calls.must("open " + path, SYS_open, {name, static_cast<uint64_t>(flags), 0}));
  return static_cast<int>(fd);
}

// Opens a file for the kernel to take it for the process's program: it must be executable. A trace's copy is not, and
// is copied into memory.
Result<int> Transplant::open_program(uint64_t file, MappedPaths& paths) {
  ASSIGN_OR_RETURN(const std::string path, paths.of(file));
  if (access(path.c_str(), X_OK) == 0) return open(path, O_RDONLY | O_CLOEXEC);
  LiveCalls calls(pid_, memory_);
  const std::string name = std::filesystem::path(paths.recorded(file)).filename().string();
  ASSIGN_OR_RETURN(const uint64_t text, calls.put(name.c_str(), name.size() + 1));
  ASSIGN_OR_RETURN(const int64_t made, calls.must("make a file in memory", SYS_memfd_create, {text, MFD_CLOEXEC}));
  const std::string copy = fmt::format("/proc/{}/fd/{}", pid_, made);
  std::error_code failed;
  std::filesystem::copy_file(path, copy, std::filesystem::copy_options::overwrite_existing, failed);
  if (failed) return errno_error("cannot copy " + path, failed.value());
  constexpr mode_t kOwnProgram = 0700;
  if (chmod(copy.c_str(), kOwnProgram) != 0) return errno_error("cannot make a program of a copy of " + path);
  // The kernel takes no file that is open for writing.
  ASSIGN_OR_RETURN(const int fd, open(fmt::format("/proc/self/fd/{}", made), O_RDONLY | O_CLOEXEC));
  TRY(calls.call(SYS_close, {static_cast<uint64_t>(made)}));
  return fd;
}

Result<void> Transplant::map(const Mapping& mapping, MappedPaths& paths, const LiveShared& shared, const Keeper& keeper,
                             UnitId unit) {
  LiveCalls calls(pid_, memory_);
  const auto protection = static_cast<uint64_t>(mapping.protection);
  const auto map_it = [&](int flags, int fd, uint64_t offset) {
    return calls.must(fmt::format("map memory at {:#x}", mapping.start), SYS_mmap,
                      {mapping.start, mapping.length(), protection, static_cast<uint64_t>(flags | MAP_FIXED),
                       static_cast<uint64_t>(fd), offset});
  };
  if (mapping.shows_object()) {
    TRY(map_it(MAP_SHARED, keeper.shared_number(shared.index_of(unit, mapping.shared_object)), mapping.offset));
    return {};
  }
  if (mapping.file) {
    ASSIGN_OR_RETURN(const std::string path, paths.of(mapping.file));
    ASSIGN_OR_RETURN(const int fd, open(path, O_RDONLY | O_CLOEXEC));
    TRY(map_it(mapping.shared ? MAP_SHARED : MAP_PRIVATE, fd, mapping.offset));
    TRY(calls.call(SYS_close, {static_cast<uint64_t>(fd)}));
    return {};
  }
  const int growth = mapping.is_stack() ? MAP_GROWSDOWN | MAP_STACK : 0;
  TRY(map_it(MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | growth, -1, 0));
  return {};
}

Result<void> Transplant::fill(const ProcessState& state, const Memory& from, MappedPaths& paths) {
  const auto own = [](const Mapping& mapping) { return !mapping.shows_object() && !mapping.shared; };
  return visit_pages(from, state.mappings, own,
                     [&](const Mapping& mapping, Address address, std::span<const uint8_t> pages) -> Result<void> {
                       const bool code = mapping.file && mapping.protection & PROT_EXEC;
                       if (!code) {
                         if (!memory_.write(address, pages.data(), pages.size()))
                           return errno_error("cannot fill memory");
                         return {};
                       }
                       Bytes own_code(pages.begin(), pages.end());
                       const size_t before = std::min<uint64_t>(kLongestTrapped - 1, address - mapping.start);
                       Bytes original(before + own_code.size() + kLongestTrapped - 1);
                       const Fd copy(::open(paths.copy_of(mapping.file).c_str(), O_RDONLY | O_CLOEXEC));
                       const auto offset = static_cast<off_t>(mapping.offset + (address - mapping.start) - before);
                       if (pread(copy.get(), original.data(), original.size(), offset) < 0)
                         return errno_error("cannot read a copy");
                       put_back_trapped(original, before, own_code);
                       if (!memory_.write(address, own_code.data(), own_code.size()))
                         return errno_error("cannot fill memory");
                       return {};
                     });
}

// Where the program's parts are, and its name, for brk(2) and for those who look at the process.
Result<void> Transplant::describe_layout(const ProcessState& state, const Memory& from, MappedPaths& paths) {
  prctl_mm_map layout{};
  layout.exe_fd = ~0u;
  layout.brk = layout.start_brk = state.brk;
  const Mapping* stack = nullptr;
  for (const Mapping& mapping : state.mappings) {
    if (is_heap(mapping, state.brk)) layout.start_brk = mapping.start;
    if (mapping.is_stack()) stack = &mapping;
  }
  const Address stack_end = stack ? stack->end - sizeof(uint64_t) : kUserEnd - kPageSize;
  layout.start_stack = layout.arg_start = layout.arg_end = layout.env_start = layout.env_end = stack_end;
  layout.start_code = layout.start_data = layout.end_data = state.mappings.front().start;
  layout.end_code = state.mappings.front().end;
  Bytes vector;
  if (stack) {
    constexpr uint64_t kMostStack = 8 << 20;
    Bytes bytes(std::min(stack->length(), kMostStack));
    const Address first = stack->end - bytes.size();
    if (from.read(first, bytes.data(), bytes.size())) vector = find_auxiliary_vector(bytes);
    const auto at = std::search(bytes.begin(), bytes.end(), vector.begin(), vector.end());
    // Before it are the pointers to the environment and, before these, to the arguments and their number.
    const auto word = [&](size_t place) {
      uint64_t value = 0;
      std::memcpy(&value, bytes.data() + place, sizeof value);
      return value;
    };
    size_t place = static_cast<size_t>(at - bytes.begin());
    constexpr size_t kWord = sizeof(uint64_t);
    if (!vector.empty() && place >= 2 * kWord) {
      place -= kWord;  // the null pointer at the end of the environment
      while (place >= kWord && word(place - kWord) != 0) place -= kWord;
      const uint64_t environment = word(place);
      place -= std::min(place, kWord);  // ... of the arguments
      size_t arguments = place;
      while (arguments >= kWord && word(arguments - kWord) > (place - arguments) / kWord) arguments -= kWord;
      layout.start_stack = first + arguments - std::min(arguments, kWord);
      const auto inside = [&](uint64_t address) { return first <= address && address < stack_end; };
      if (const uint64_t argument = word(arguments);
          inside(argument) && inside(environment) && argument < environment) {
        layout.arg_start = argument;
        layout.arg_end = layout.env_start = environment;
      }
    }
  }
  const auto entry = auxiliary_value(vector, AT_ENTRY);
  const Mapping* const program = entry ? mapping_at(state.mappings, *entry) : nullptr;
  if (program) {
    layout.start_code = program->start;
    layout.end_code = program->end;
  }
  LiveCalls calls(pid_, memory_);
  if (program && program->file) {
    ASSIGN_OR_RETURN(const int fd, open_program(program->file, paths));
    layout.exe_fd = static_cast<uint32_t>(fd);
  }
  if (vector.size() <= kPageSize / 2) {
    layout.auxv_size = static_cast<uint32_t>(vector.size());
    layout.auxv = layout.auxv_size ? reinterpret_cast<__u64*>(kLiveGate + kPageSize + sizeof layout) : nullptr;
  }
  Bytes all(reinterpret_cast<const uint8_t*>(&layout), reinterpret_cast<const uint8_t*>(&layout) + sizeof layout);
  all.insert(all.end(), vector.begin(), vector.end());
  ASSIGN_OR_RETURN(const uint64_t place, calls.put(all.data(), all.size()));
  TRY(calls.must("tell the kernel where the program's heap is", SYS_prctl,
                 {PR_SET_MM, PR_SET_MM_MAP, place, sizeof layout, 0}));
  if (layout.exe_fd == ~0u) return {};
  TRY(calls.call(SYS_close, {layout.exe_fd}));
  const std::string name = std::filesystem::path(paths.recorded(program->file)).filename().string();
  ASSIGN_OR_RETURN(const uint64_t text, calls.put(name.c_str(), name.size() + 1));
  TRY(calls.call(SYS_prctl, {PR_SET_NAME, text}));
  return {};
}

Result<void> Transplant::give_memory(const ProcessState& state, const Memory& from, MappedPaths& paths,
                                     const LiveShared& shared, const Keeper& keeper, UnitId unit) {
  LiveCalls calls(pid_, memory_);
  TRY(calls.must("unmap memory", SYS_munmap, {0, kLiveGate}));
  TRY(calls.must("unmap memory", SYS_munmap, {kLiveGate + kGateSize, kUserEnd - kLiveGate - kGateSize}));
  for (const Mapping& mapping : state.mappings) TRY(map(mapping, paths, shared, keeper, unit));
  for (size_t i = 0; i <= shared.descriptors().size(); ++i) {  // and the socket by which it has reported
    TRY(calls.call(SYS_close, {static_cast<uint64_t>(keeper.shared_number(i))}));
  }
  TRY(fill(state, from, paths));
  for (const auto& [entry, descriptor] : state.descriptors) {
    constexpr uint64_t kWrite = 0x11;
    ASSIGN_OR_RETURN(const uint64_t place, calls.put(&descriptor, sizeof descriptor));
    TRY(calls.must("set a segment", SYS_modify_ldt, {kWrite, place, sizeof descriptor}));
  }
  return describe_layout(state, from, paths);
}

// ---- Threads

Result<void> Transplant::give_threads(const LiveProcess& process) {
  LiveCalls calls(pid_, memory_);
  for (size_t i = 1; i < process.threads.size(); ++i) {
    struct {
      clone_args how;
      int32_t number;
    } asked{};
    asked.number = process.threads[i].tid;
    asked.how.flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    asked.how.set_tid_size = 1;
    asked.how.set_tid = kLiveGate + kPageSize + offsetof(decltype(asked), number);
    ASSIGN_OR_RETURN(const uint64_t place, calls.put(&asked, sizeof asked));
    TRY(calls.must(fmt::format("make thread {} again", asked.number), SYS_clone3, {place, sizeof asked.how}));
    int status = 0;
    const pid_t tid = calls.made();
    if (tid <= 0 || !wait_for(tid, status) || !WIFSTOPPED(status))
      return Error{"cannot trace a thread that is to live"};
    tids_.push_back(tid);
  }
  return {};
}

// A thread may send itself signals that say that they come from others.
Result<void> Transplant::send_pending(size_t i, const LiveProcess& process) {
  if (!set_signal_mask(tids_[i], ~0ull)) {
    return errno_error("cannot block the signals of a thread that is to live");
  }
  LiveCalls calls(tids_[i], memory_);
  const auto pid = static_cast<uint64_t>(process.pid), tid = static_cast<uint64_t>(process.threads[i].tid);
  const auto kills = [&](const siginfo_t& info) {
    killed_ |= info.si_signo == SIGKILL;
    return info.si_signo == SIGKILL;
  };
  for (const siginfo_t& info : process.threads[i].pending) {
    if (kills(info)) continue;
    ASSIGN_OR_RETURN(const uint64_t place, calls.put(&info, sizeof info));
    TRY(calls.must("send a pending signal", SYS_rt_tgsigqueueinfo,
                   {pid, tid, static_cast<uint64_t>(info.si_signo), place}));
  }
  if (i != 0) return {};
  for (const siginfo_t& info : process.pending) {
    if (kills(info)) continue;
    ASSIGN_OR_RETURN(const uint64_t place, calls.put(&info, sizeof info));
    TRY(calls.must("send a pending signal", SYS_rt_sigqueueinfo, {pid, static_cast<uint64_t>(info.si_signo), place}));
  }
  return {};
}

namespace {

Result<void> make_again(LiveCalls& calls, const LiveCall& call) {
  auto args = call.args;
  if (call.pointer) {
    ASSIGN_OR_RETURN(args[*call.pointer], calls.put(call.memory.data(), call.memory.size()));
  }
  TRY(calls.must(fmt::format("repeat {}(2)", syscall_name(call.number)), call.number,
                 {args[0], args[1], args[2], args[3], args[4], args[5]}));
  return {};
}

}  // namespace

Result<void> Transplant::finish(const LiveProcess& process) {
  for (size_t i = process.threads.size(); i-- > 0;) {
    const LiveThread& thread = process.threads[i];
    LiveCalls calls(tids_[i], memory_);
    TRY(send_pending(i, process));
    TRY(calls.call(SYS_set_tid_address, {thread.clear_tid}));
    if (thread.robust_list) {
      TRY(calls.must("set the list of robust futexes", SYS_set_robust_list,
                     {thread.robust_list, thread.robust_length}));
    }
    if (thread.alternate_stack) {
      stack_t stack = *thread.alternate_stack;
      stack.ss_flags &= ~SS_ONSTACK;
      ASSIGN_OR_RETURN(const uint64_t place, calls.put(&stack, sizeof stack));
      TRY(calls.must("set the stack of signal handlers", SYS_sigaltstack, {place, 0}));
    }
    if (!thread.name.empty()) {
      ASSIGN_OR_RETURN(const uint64_t place, calls.put(thread.name.c_str(), thread.name.size() + 1));
      TRY(calls.must("set the name of a thread", SYS_prctl, {PR_SET_NAME, place}));
    }
    if (i == 0) {
      for (const auto& [which, timer] : process.timers) {
        ASSIGN_OR_RETURN(const uint64_t place, calls.put(&timer, sizeof timer));
        TRY(calls.must("start a timer", SYS_setitimer, {which, place, 0}));
      }
    }
    for (const LiveCall& call : thread.repeated) TRY(make_again(calls, call));
    if (i == 0) {
      for (const LiveCall& call : process.repeated) TRY(make_again(calls, call));
    }
    if (geteuid() != 0) {  // in a namespace of its own it had all capabilities
      struct {
        __user_cap_header_struct header;
        __user_cap_data_struct none[2];
      } asked{{_LINUX_CAPABILITY_VERSION_3, 0}, {}};
      ASSIGN_OR_RETURN(const uint64_t place, calls.put(&asked, sizeof asked));
      TRY(calls.must("give up capabilities", SYS_capset, {place, place + offsetof(decltype(asked), none)}));
    }
    if (i == 0) TRY(calls.must("unmap memory", SYS_munmap, {kLiveGate, kGateSize}));
  }
  for (const auto& [resource, limit] : process.limits) {
    if (prlimit(pid_, static_cast<__rlimit_resource>(resource), &limit, nullptr) != 0) {
      return errno_error("cannot set a limit of a process that is to live");
    }
  }
  if (process.stack_limit) {
    rlimit stack{};
    prlimit(pid_, RLIMIT_STACK, nullptr, &stack);
    stack.rlim_cur = std::min(process.stack_limit, stack.rlim_max);
    prlimit(pid_, RLIMIT_STACK, &stack, nullptr);
  }
  for (size_t i = 0; i < process.threads.size(); ++i) {
    const LiveThread& thread = process.threads[i];
    const bool set = set_xstate(tids_[i], thread.xstate) && set_regs(tids_[i], thread.regs) &&
                     set_signal_mask(tids_[i], thread.mask);
    if (!set) return errno_error("cannot set the registers of a thread that is to live");
  }
  return {};
}

Result<void> Transplant::let_go(bool stopped) {
  if (stopped) kill(pid_, SIGSTOP);
  if (killed_) kill(pid_, SIGKILL);
  for (const pid_t tid : tids_) {
    if (detach(tid)) continue;
    if (errno != ESRCH) return errno_error("cannot let a process go");
    int status = 0;
    wait_for(tid, status);  // another process has killed it; its parent sees that after its tracer
  }
  return {};
}

}  // namespace redrive
