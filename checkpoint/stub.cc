#include "checkpoint/stub.h"

#include <elf.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/check.h"
#include "checkpoint/address_space.h"

namespace redrive {
namespace {

constexpr Address kGateCode = kStubSyscallEnd - 2;  // syscall; int3
constexpr Address kScratch = kGateStart + kPageSize;
constexpr long kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                          PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL;
constexpr uint64_t kCpuidFaulting = 0x1012;  // ARCH_SET_CPUID, off = faults

// The stub program: an ELF header, one loadable segment, and the gate's code.
Bytes stub_program() {
  Bytes image(0x110);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_EXEC;
  header.e_machine = EM_X86_64;
  header.e_version = EV_CURRENT;
  header.e_entry = kGateCode;
  header.e_phoff = sizeof header;
  header.e_ehsize = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  Elf64_Phdr segment{};
  segment.p_type = PT_LOAD;
  segment.p_flags = PF_R | PF_X;
  segment.p_vaddr = segment.p_paddr = kGateStart;
  segment.p_filesz = segment.p_memsz = image.size();
  segment.p_align = kPageSize;
  std::memcpy(image.data(), &header, sizeof header);
  std::memcpy(image.data() + sizeof header, &segment, sizeof segment);
  const uint8_t code[] = {0x0f, 0x05, 0xcc};
  std::memcpy(image.data() + (kGateCode - kGateStart), code, sizeof code);
  return image;
}

// The stub program as an open memfd, made once.
int stub_fd() {
  static const int fd = [] {
    const int memfd = memfd_create("redrive-stub", MFD_CLOEXEC);
    const Bytes image = stub_program();
    if (memfd >= 0 && ::write(memfd, image.data(), image.size()) != static_cast<ssize_t>(image.size())) return -1;
    return memfd;
  }();
  return fd;
}

// Between vfork and exec only system calls are made: the child runs on the parent's memory.
pid_t spawn_traced(int program) {
  char* const argv[] = {const_cast<char*>("redrive-stub"), nullptr};
  char* const envp[] = {nullptr};
  const pid_t pid = vfork();
  if (pid != 0) return pid;
  const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
  setrlimit(RLIMIT_STACK, &unlimited);
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0) fexecve(program, argv, envp);
  _exit(127);
}

bool at_trap(int status) { return WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP && status >> 16 == 0; }

}  // namespace

bool wait_for(pid_t tid, int& status) {
  for (;;) {
    const pid_t got = waitpid(tid, &status, __WALL);
    if (got == tid) return true;
    if (got < 0 && errno == EINTR) continue;
    return false;
  }
}

Result<Stub> Stub::spawn() {
  if (stub_fd() < 0) return errno_error("cannot make the stub program");
  Stub stub;
  stub.pid_ = spawn_traced(stub_fd());
  if (stub.pid_ < 0) return errno_error("cannot start a stub process");
  int status = 0;
  if (!wait_for(stub.pid_, status) || !at_trap(status)) {
    return Error{"a stub process did not start: ptrace may be forbidden here (see `redrive check --host`)"};
  }
  if (ptrace(PTRACE_SETOPTIONS, stub.pid_, nullptr, kOptions) != 0) return errno_error("cannot trace a stub process");
  ASSIGN_OR_RETURN(stub.memory_, Memory::open(stub.pid_));
  // Leave nothing mapped but the gate, then add the scratch page that passes strings to the kernel.
  ASSIGN_OR_RETURN(const auto mappings, read_mappings(stub.pid_));
  for (const auto& m : mappings) {
    if (m.start != kGateStart) TRY(stub.unmap(stub.pid_, m.start, m.length()));
  }
  if (const Address vdso = vdso_address(stub.pid_)) {
    // The kernel's data pages lie right below the vDSO; unmapping holes is harmless.
    TRY(stub.unmap(stub.pid_, vdso - 16 * kPageSize, 32 * kPageSize));
  }
  TRY(stub.map_anonymous(stub.pid_, kScratch, kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE));
  ASSIGN_OR_RETURN(const int64_t tsc, stub.call(stub.pid_, SYS_prctl, {PR_SET_TSC, PR_TSC_SIGSEGV}));
  if (tsc < 0) return Error{"cannot trap rdtsc in a stub process"};
  // Where the machine cannot trap cpuid, the recording could not either.
  ASSIGN_OR_RETURN(const int64_t cpuid, stub.call(stub.pid_, SYS_arch_prctl, {kCpuidFaulting, 0}));
  static_cast<void>(cpuid);
  return stub;
}

Result<Stub> Stub::adopt(pid_t pid) {
  Stub stub;
  stub.pid_ = pid;
  ASSIGN_OR_RETURN(stub.memory_, Memory::open(pid));
  return stub;
}

Result<pid_t> Stub::hand_over() && {
  if (ptrace(PTRACE_DETACH, pid_, nullptr, SIGSTOP) != 0) return errno_error("cannot let a forked process go");
  return std::exchange(pid_, -1);
}

Result<Stub> Stub::take_over(pid_t pid) {
  int status = 0;
  if (ptrace(PTRACE_ATTACH, pid, nullptr, nullptr) != 0 || !wait_for(pid, status) || !WIFSTOPPED(status) ||
      ptrace(PTRACE_SETOPTIONS, pid, nullptr, kOptions) != 0) {
    return Error{"a forked process ended before it could be taken over"};
  }
  return adopt(pid);
}

void Stub::end_thread(pid_t tid) const {
  user_regs_struct regs;
  if (!get_regs(tid, regs)) return;
  regs.rip = kGateCode;
  regs.rax = SYS_exit;
  regs.orig_rax = ~0ull;
  regs.rdi = 0;
  set_regs(tid, regs);
  int status = 0;
  do {
    ptrace(PTRACE_CONT, tid, nullptr, nullptr);
  } while (wait_for(tid, status) && WIFSTOPPED(status));
}

Stub::Stub(Stub&& other) noexcept : pid_(std::exchange(other.pid_, -1)), memory_(std::move(other.memory_)) {}

Stub& Stub::operator=(Stub&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(memory_, other.memory_);
  return *this;
}

Stub::~Stub() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  // A tracer must see the end of every thread; the leader's comes last.
  std::error_code ignored;
  const std::string tasks = "/proc/" + std::to_string(pid_) + "/task";
  std::vector<pid_t> threads;
  for (const auto& entry : std::filesystem::directory_iterator(tasks, ignored)) {
    threads.push_back(static_cast<pid_t>(std::stol(entry.path().filename())));
  }
  std::partition(threads.begin(), threads.end(), [&](pid_t tid) { return tid != pid_; });
  for (const pid_t tid : threads) {
    int status = 0;
    while (wait_for(tid, status) && WIFSTOPPED(status)) ptrace(PTRACE_CONT, tid, nullptr, nullptr);
  }
}

Result<int64_t> Stub::call(pid_t tid, long number, std::initializer_list<uint64_t> args) const {
  user_regs_struct saved;
  if (!get_regs(tid, saved)) return errno_error("cannot read a stub's registers");
  user_regs_struct regs = saved;
  regs.rip = kGateCode;
  regs.rax = static_cast<uint64_t>(number);
  regs.orig_rax = ~0ull;
  regs.eflags = 0x202;
  int index = 0;
  for (const uint64_t arg : args) syscall_arg(regs, index++) = arg;
  if (!set_regs(tid, regs)) return errno_error("cannot set a stub's registers");
  int status = 0;
  do {
    if (ptrace(PTRACE_CONT, tid, nullptr, nullptr) != 0 || !wait_for(tid, status) || !WIFSTOPPED(status)) {
      return Error{"a stub process ended unexpectedly"};
    }
    // Signals from outside (a terminal's Ctrl-C) are none of the program's.
  } while (!at_trap(status));
  if (!get_regs(tid, regs)) return errno_error("cannot read a stub's registers");
  if (!set_regs(tid, saved)) return errno_error("cannot set a stub's registers");
  return static_cast<int64_t>(regs.rax);
}

Result<pid_t> Stub::clone(pid_t tid, uint64_t flags) const {
  user_regs_struct saved;
  if (!get_regs(tid, saved)) return errno_error("cannot read a stub's registers");
  ASSIGN_OR_RETURN(const int64_t made, call(tid, SYS_clone, {flags, 0, 0, 0, 0}));
  if (made < 0) return Error{"cannot clone in a stub: " + std::string(std::strerror(static_cast<int>(-made)))};
  const auto child = static_cast<pid_t>(made);
  int status = 0;
  if (!wait_for(child, status) || !WIFSTOPPED(status)) return Error{"a stub's child did not start"};
  if (!set_regs(child, saved)) return errno_error("cannot set a stub's registers");
  return child;
}

Result<void> Stub::map_file(pid_t tid, const std::string& path, Address start, uint64_t length, int protection,
                            int flags, uint64_t offset) const {
  CHECK(path.size() < kPageSize);
  if (!memory_.write(kScratch, path.c_str(), path.size() + 1)) return errno_error("cannot write to a stub");
  const uint64_t mode = flags & MAP_SHARED ? O_RDWR : O_RDONLY;
  ASSIGN_OR_RETURN(const int64_t fd, call(tid, SYS_open, {kScratch, mode, 0}));
  if (fd < 0) return Error{"cannot map " + path + ": " + std::strerror(static_cast<int>(-fd))};
  ASSIGN_OR_RETURN(const int64_t at,
                   call(tid, SYS_mmap,
                        {start, length, static_cast<uint64_t>(protection), static_cast<uint64_t>(flags | MAP_FIXED),
                         static_cast<uint64_t>(fd), offset}));
  ASSIGN_OR_RETURN(const int64_t closed, call(tid, SYS_close, {static_cast<uint64_t>(fd)}));
  static_cast<void>(closed);
  if (at != static_cast<int64_t>(start))
    return Error{"cannot map " + path + ": " + std::strerror(static_cast<int>(-at))};
  return {};
}

Result<void> Stub::map_anonymous(pid_t tid, Address start, uint64_t length, int protection, int flags) const {
  ASSIGN_OR_RETURN(const int64_t at, call(tid, SYS_mmap,
                                          {start, length, static_cast<uint64_t>(protection),
                                           static_cast<uint64_t>(flags | MAP_FIXED | MAP_ANONYMOUS), ~0ull, 0}));
  if (at != static_cast<int64_t>(start)) {
    return Error{"cannot map memory in a stub: " + std::string(std::strerror(static_cast<int>(-at)))};
  }
  return {};
}

Result<void> Stub::unmap(pid_t tid, Address start, uint64_t length) const {
  ASSIGN_OR_RETURN(const int64_t result, call(tid, SYS_munmap, {start, length}));
  if (result != 0)
    return Error{"cannot unmap memory in a stub: " + std::string(std::strerror(static_cast<int>(-result)))};
  return {};
}

}  // namespace redrive
