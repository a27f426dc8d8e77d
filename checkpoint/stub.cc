#include "checkpoint/stub.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/assert.h"
#include "base/brief_file.h"
#include "base/pass_fd.h"
#include "base/procfs.h"
#include "base/text.h"
#include "checkpoint/address_space.h"
#include "checkpoint/stub_maker.h"
#include "checkpoint/stub_namespaces.h"
#include "checkpoint/tiny_program.h"

namespace redrive {
namespace {

// The stub's own code: it makes the calls from rbx to rbp, up to the first that fails. r12 is the descriptor that was
// received last, for calls that use kReceived.
extern "C" const uint8_t redrive_stub_code[], redrive_stub_syscall[], redrive_stub_code_end[];
asm(R"(
  .pushsection .rodata
redrive_stub_code:
  mov 0(%rbx), %rax
  mov 8(%rbx), %rdi
  mov 16(%rbx), %rsi
  mov 24(%rbx), %rdx
  mov 32(%rbx), %r10
  mov 40(%rbx), %r8
  mov 48(%rbx), %r9
  cmp $-2, %rdi
  cmove %r12, %rdi
  cmp $-2, %r8
  cmove %r12, %r8
redrive_stub_syscall:
  syscall
  cmp $-4095, %rax
  jae 1f
  cmpq $47, 0(%rbx)  # recvmsg(2)
  cmove 0x70001fe0, %r12
  add $56, %rbx
  cmp %rbp, %rbx
  jne redrive_stub_code
1:
  int3
redrive_stub_code_end:
  .popsection
)");
constexpr uint64_t kReceived = ~uint64_t{1};
constexpr uint64_t kSocket = 0;  // its only descriptor

constexpr Address kGateCode = kStubSyscallEnd - 2;
constexpr Address kScratch = kGateStart + kPageSize;
constexpr uint64_t kCallSize = 56;  // Stub::Call

// After the list of calls: the arguments for receiving a file.
constexpr Address kReceiving = kScratch + 0xf80;
static_assert(SYS_recvmsg == 47 && kReceiving + offsetof(Receiving, descriptor) == 0x70001fe0);
constexpr size_t kMostCalls = (kReceiving - kScratch) / kCallSize;
constexpr long kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                          PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL;
constexpr uint64_t kNsPerSecond = 1'000'000'000;
constexpr uint64_t kMostTicks = 120;  // seconds of CPU time for a list of calls: unmapping much memory takes long
constexpr uint64_t kCpuidFaulting = 0x1012;  // ARCH_SET_CPUID, off = faults

// Where the code that makes a list of calls starts.
Address list_code() { return kGateCode - static_cast<Address>(redrive_stub_syscall - redrive_stub_code); }

std::span<const uint8_t> stub_code() {
  return {redrive_stub_code, static_cast<size_t>(redrive_stub_code_end - redrive_stub_code)};
}

// The stub program as an open memfd, made once.
const Result<Fd>& stub_file() {
  static const auto file = make_tiny_program("redrive-stub", {kGateStart, list_code(), stub_code(), kGateCode, true});
  return file;
}

// The two ends of a socket; the first one is ours.
struct Sockets {
  Fd ours, its;
};
Result<Sockets> make_sockets() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return errno_error("cannot make a socket for a stub process");
  return Sockets{Fd(ends[0]), Fd(ends[1])};
}

struct StartingStub {
  int program, socket;
  pid_t maker;
};

REDRIVE_ON_OUR_MEMORY
int run_stub(void* arg) {
  const auto& starting = *static_cast<const StartingStub*>(arg);
  char* const argv[] = {const_cast<char*>("redrive-stub"), nullptr};
  char* const envp[] = {nullptr};
  const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY}, none_at_all{0, 0};
  setrlimit(RLIMIT_STACK, &unlimited);
  for (const auto resource : {RLIMIT_CORE, RLIMIT_FSIZE, RLIMIT_MEMLOCK, RLIMIT_MSGQUEUE}) {
    setrlimit(resource, &none_at_all);
  }
  if (dup2(starting.socket, kSocket) < 0 || fcntl(kSocket, F_SETFD, 0) != 0 ||
      close_range(kSocket + 1, ~0u, CLOSE_RANGE_CLOEXEC) != 0)
    _exit(127);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  // Until PTRACE_O_EXITKILL is set, the stub would outlive a maker that is killed. In another PID namespace getppid()
  // is 0; there the stub ends with the namespace.
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (const pid_t parent = getppid(); parent != 0 && parent != starting.maker) _exit(127);
  // It stops at the exec by a signal.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0) fexecve(starting.program, argv, envp);
  _exit(127);
}

// Lets the kernel kill this process, and those forked from it, first when memory gets scarce (proc(5), oom_score_adj).
void sacrifice_first(pid_t pid) {
  constexpr std::string_view kFirst = "1000";
  const Fd score(::open(proc_path(pid, "oom_score_adj").c_str(), O_WRONLY | O_CLOEXEC));
  const bool ranked = score && ::write(score.get(), kFirst.data(), kFirst.size()) > 0;
  static_cast<void>(ranked);  // fails if /proc may not be written to
}

bool attach(pid_t tid) {
  int status = 0;
  return ptrace(PTRACE_ATTACH, tid, nullptr, nullptr) == 0 && wait_for(tid, status) && WIFSTOPPED(status) &&
         ptrace(PTRACE_SETOPTIONS, tid, nullptr, kOptions) == 0;
}

bool touches_stub(Address start, uint64_t length) {
  const Address end = start + length;
  return end < start || (start < kGateEnd && kGateStart < end);
}

bool at_trap(int status) { return WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP && status >> 16 == 0; }
bool at_birth(int status) {
  const int event = status >> 16;
  return event == PTRACE_EVENT_CLONE || event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK;
}
bool at_filter(int status) { return WIFSTOPPED(status) && status >> 16 == PTRACE_EVENT_SECCOMP; }

// If the process has ended and was waited for, its number may belong to another process; the pidfd does not.
void end_process(pid_t pid, const Fd& pidfd) {
  if (pidfd) {
    syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
  } else {
    kill(pid, SIGKILL);
  }
}

// Makes the thread stop at instructions whose results a recording has.
Result<void> trap_instructions(const Stub& stub, pid_t tid) {
  ASSIGN_OR_RETURN(const int64_t rdtsc, stub.call(tid, SYS_prctl, {PR_SET_TSC, PR_TSC_SIGSEGV}));
  if (rdtsc != 0) return errno_error("cannot trap rdtsc in a stub process", static_cast<int>(-rdtsc));
  // If the machine cannot trap cpuid, the recording could not do so either.
  static std::atomic<bool> traps_cpuid = true;
  if (traps_cpuid) {
    ASSIGN_OR_RETURN(const int64_t cpuid, stub.call(tid, SYS_arch_prctl, {kCpuidFaulting, 0}));
    traps_cpuid = cpuid == 0;
  }
  return {};
}

// Sets a soft limit, as far as it may be raised. If it is another user's process, it may be that only the process
// itself can do that.
void limit(const Stub& stub, __rlimit_resource resource, uint64_t most) {
  const auto number = static_cast<uint64_t>(resource);
  rlimit now{};
  const bool from_here = prlimit(stub.pid(), resource, nullptr, &now) == 0;
  if (!from_here) {
    const auto asked = stub.call(stub.pid(), SYS_prlimit64, {0, number, 0, kScratch});
    if (!asked || *asked != 0 || !stub.memory().get(kScratch, now)) return;
  }
  now.rlim_cur = std::min<rlim_t>(most, now.rlim_max);
  if (from_here) {
    prlimit(stub.pid(), resource, &now, nullptr);
  } else if (stub.memory().put(kScratch, now)) {
    static_cast<void>(stub.call(stub.pid(), SYS_prlimit64, {0, number, kScratch, 0}));
  }
}

}  // namespace

Bytes stub_program() {
  Bytes program(kTinyProgramSize);
  const ssize_t got = stub_file() ? pread(stub_file()->get(), program.data(), program.size(), 0) : 0;
  program.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return program;
}

Address stub_trap() { return list_code() + stub_code().size() - 1; }

uint64_t stack_limit(pid_t pid) {
  rlimit limit{};
  return prlimit(pid, RLIMIT_STACK, nullptr, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

bool read_implies_exec(pid_t tid) {
  const std::string personality = read_briefly(fmt::format("/proc/{}/personality", tid));
  return std::strtoul(personality.c_str(), nullptr, 16) & READ_IMPLIES_EXEC;
}

Result<void> let_read_imply_exec(const Stub& stub, pid_t tid, bool implies) {
  TRY(stub.call(tid, SYS_personality, {implies ? uint64_t{READ_IMPLIES_EXEC} : uint64_t{PER_LINUX}}));
  return {};
}

bool is_forbidden(long number, std::span<const uint64_t, 6> args) {
  switch (number) {
    case SYS_mmap:
    case SYS_munmap:
    case SYS_mprotect:
      return touches_stub(args[0], args[1]);
    case SYS_madvise:
      return touches_stub(args[0], args[1]) || args[2] >= MADV_HWPOISON;
    case SYS_mremap:
      return touches_stub(args[0], args[1]) || ((args[3] & MREMAP_FIXED) && touches_stub(args[4], args[2]));
    default:
      return false;
  }
}

Error forbidden_call() {
  return Error{
      fmt::format("the recorded program used memory at {:#x}, where a replay has code of its own", kGateStart)};
}

bool wait_for(pid_t tid, int& status) {
  for (;;) {
    const pid_t got = waitpid(tid, &status, __WALL);
    if (got == tid) return true;
    if (got < 0 && errno == EINTR) continue;
    return false;
  }
}

Result<Stub> Stub::spawn(const StubTier& tier) {
  ASSIGN_OR_RETURN(ReleasedStub made, StubMaker::ours().make(tier));
  return take_over(std::move(made));
}

Result<Stub> Stub::spawn_template(const StubTier& tier) {
  return spawn_by([](auto body, void* arg) { return StubNamespaces::ours().spawn(body, arg); }, tier);
}

Result<Stub> Stub::spawn_here() { return spawn_by(StubNamespaces::spawn_outside, {}); }

Result<Stub> Stub::spawn_by(Result<pid_t> (*spawn)(int (*body)(void*), void* arg), const StubTier& tier) {
  if (!stub_file()) return stub_file().error();
  ASSIGN_OR_RETURN(Sockets sockets, make_sockets());
  Stub stub;
  stub.files_ = std::move(sockets.ours);
  StartingStub starting{stub_file()->get(), sockets.its.get(), getpid()};
  const auto spawned = spawn(run_stub, &starting);
  if (!spawned) return Error{"cannot start a stub process: " + spawned.error().message};
  stub.pid_ = *spawned;
  int status = 0;
  if (!wait_for(stub.pid_, status) || !at_trap(status)) {
    return Error{"a stub process did not start: ptrace may be forbidden here (see `redrive check --host`)"};
  }
  if (ptrace(PTRACE_SETOPTIONS, stub.pid_, nullptr, kOptions) != 0) return errno_error("cannot trace a stub process");
  TRY(stub.begin());
  sacrifice_first(stub.pid_);
  // Unmaps everything except the stub's own two pages.
  ASSIGN_OR_RETURN(const auto mappings, read_mappings(stub.pid_));
  StubCalls calls(stub, stub.pid_);
  for (const auto& m : mappings) {
    if (m.start >= kGateEnd || m.end <= kGateStart) TRY(calls.unmap(m.start, m.length()));
  }
  if (const Address vdso = vdso_address(stub.pid_)) {
    // The kernel's data pages lie right below the vDSO; unmapping holes does no harm.
    TRY(calls.unmap(vdso - 16 * kPageSize, 32 * kPageSize));
  }
  // The stub may be handed over to another thread than the one that made it, and that one may end first.
  TRY(calls.add("let a stub process outlive a thread", SYS_prctl, {PR_SET_PDEATHSIG, 0}));
  TRY(calls.run());
  TRY(trap_instructions(stub, stub.pid_));
  TRY(stub.confine(tier));
  return stub;
}

// From now on only the calls that the filter allows are let through.
Result<void> Stub::confine(const StubTier& tier) const {
  const auto filter = stub_filter(kStubSyscallEnd, {kGateStart, kGateEnd}, tier);
  const sock_fprog program{static_cast<unsigned short>(filter.size()),
                           reinterpret_cast<sock_filter*>(kScratch + sizeof program)};
  const bool written = memory_.put(kScratch, program) &&
                       memory_.write(kScratch + sizeof program, filter.data(), filter.size() * sizeof filter.front());
  if (!written) return errno_error("cannot write to a stub");
  ASSIGN_OR_RETURN(const int64_t result, call(pid_, SYS_seccomp, {SECCOMP_SET_MODE_FILTER, 0, kScratch}));
  if (result == 0) return {};
  return errno_error("cannot set a seccomp filter (see `redrive check --host`)", static_cast<int>(-result));
}

Result<void> Stub::begin() {
  if (!pidfd_) pidfd_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (!pidfd_) return errno_error("cannot open a stub process");
  ASSIGN_OR_RETURN(memory_, Memory::open(pid_));
  tick();
  return {};
}

void Stub::limit_stack(uint64_t bytes) const { limit(*this, RLIMIT_STACK, bytes); }

// This does not use waitid(2), which reports nothing about a process until its other threads have been waited for.
bool Stub::was_killed() const {
  constexpr int kState = 3, kExitCode = 52;  // fields of proc_pid_stat(5); the code is in the format of wait(2)
  if (proc_stat_field(pid_, kState) != "Z") return false;
  const auto status = parse_number(proc_stat_field(pid_, kExitCode));
  return status && (*status & 0x7f) == SIGKILL;
}

uint64_t Stub::cpu_time_ns() const {
  clockid_t clock{};
  timespec used{};
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &used) != 0) return 0;
  return static_cast<uint64_t>(used.tv_sec) * kNsPerSecond + static_cast<uint64_t>(used.tv_nsec);
}

// The kernel raises this limit by one second each time.
void Stub::tick() const { limit(*this, RLIMIT_CPU, cpu_time_ns() / kNsPerSecond + 1); }

Result<ReleasedStub> Stub::hand_over() && {
  if (ptrace(PTRACE_DETACH, pid_, nullptr, SIGSTOP) != 0) return errno_error("cannot let a forked process go");
  return ReleasedStub{std::exchange(pid_, -1), std::move(pidfd_), std::move(files_)};
}

void ReleasedStub::end() const { end_process(pid, pidfd); }

Result<Stub> Stub::take_over(ReleasedStub released) {
  const pid_t pid = released.pid;
  if (!attach(pid)) {
    if (released.pidfd) released.end();
    return Error{"a forked process ended before it could be taken over"};
  }
  Stub stub;
  stub.pid_ = pid;
  stub.pidfd_ = std::move(released.pidfd);
  stub.files_ = std::move(released.files);
  TRY(stub.begin());
  return stub;
}

Result<Stub> Stub::adopt(pid_t pid) {
  const Error ended{"a restored process ended before it could be taken over"};
  Stub stub;
  stub.pid_ = pid;
  const std::vector<pid_t> threads = proc_threads(pid);
  if (threads.empty() || !std::all_of(threads.begin(), threads.end(), attach)) return ended;
  TRY(stub.begin());
  // The process makes both ends of its socket, and we take ours.
  int ends[2] = {-1, -1};
  ASSIGN_OR_RETURN(const int64_t made,
                   stub.call(pid, SYS_socketpair, {AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, kScratch}));
  if (made != 0 || !stub.memory_.get(kScratch, ends) || ends[0] != static_cast<int>(kSocket)) {
    return Error{"cannot make a socket in a restored process, which has other files open"};
  }
  stub.files_ = Fd(static_cast<int>(syscall(SYS_pidfd_getfd, stub.pidfd_.get(), ends[1], 0)));
  if (!stub.files_) return errno_error("cannot take a socket from a restored process");
  TRY(stub.call(pid, SYS_close, {static_cast<uint64_t>(ends[1])}));
  limit(stub, RLIMIT_FSIZE, 0);
  for (const pid_t tid : threads) TRY(trap_instructions(stub, tid));
  return stub;
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
  uint64_t stops = 0;
  do {
    ptrace(PTRACE_CONT, tid, nullptr, nullptr);
    // Code other than ours may make a different call, or none.
  } while (wait_for(tid, status) && WIFSTOPPED(status) && !at_filter(status) && ++stops < kMostTicks);
}

Stub::Stub(Stub&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::move(other.pidfd_)),
      memory_(std::move(other.memory_)),
      files_(std::move(other.files_)) {}

Stub& Stub::operator=(Stub&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(memory_, other.memory_);
  std::swap(files_, other.files_);
  return *this;
}

Stub::~Stub() {
  if (pid_ < 0) return;
  end_process(pid_, pidfd_);
  // A tracer must see the end of every thread; the leader's comes last.
  std::vector<pid_t> threads = proc_threads(pid_);
  std::partition(threads.begin(), threads.end(), [&](pid_t tid) { return tid != pid_; });
  for (const pid_t tid : threads) {
    int status = 0;
    while (wait_for(tid, status) && WIFSTOPPED(status)) ptrace(PTRACE_CONT, tid, nullptr, nullptr);
  }
}

Result<int64_t> Stub::call(pid_t tid, long number, std::initializer_list<uint64_t> args) const {
  Call call{static_cast<uint64_t>(number), {}};
  std::copy(args.begin(), args.end(), call.args);
  if (is_forbidden(number, call.args)) return forbidden_call();
  user_regs_struct regs{};
  regs.rax = call.number;
  for (size_t i = 0; i < std::size(call.args); ++i) syscall_arg(regs, static_cast<int>(i)) = call.args[i];
  ASSIGN_OR_RETURN(const Ran ran, run(tid, kGateCode, regs, std::span(&call, 1)));
  return ran.made >= 0 ? ran.made : static_cast<int64_t>(ran.regs.rax);
}

Result<Stub::Ran> Stub::run(pid_t tid, Address start, user_regs_struct regs, std::span<const Call> calls) const {
  user_regs_struct saved;
  if (!get_regs(tid, saved)) return errno_error("cannot read a stub's registers");
  regs.rip = start;
  regs.rbx = kScratch;
  regs.rbp = kScratch + calls.size() * kCallSize;
  regs.orig_rax = ~0ull;
  regs.eflags = 0x202;
  regs.cs = kCodeSegment, regs.ss = kStackSegment;  // the thread may be running code of another size
  regs.ds = saved.ds, regs.es = saved.es, regs.fs = saved.fs, regs.gs = saved.gs;
  regs.fs_base = saved.fs_base, regs.gs_base = saved.gs_base;
  regs.rsp = saved.rsp;
  if (!set_regs(tid, regs)) return errno_error("cannot set a stub's registers");
  size_t last = 0;
  const auto is_next = [&] {
    const size_t at = (regs.rbx - kScratch) / kCallSize;
    // It may be the same call again: a clone(2) that a signal interrupted.
    if (regs.rip != kStubSyscallEnd || at < last || at >= calls.size()) return false;
    last = at;
    const auto args = syscall_args(regs);
    const auto is_wanted = [&](uint64_t made, uint64_t wanted) {
      return made == (wanted == kReceived ? regs.r12 : wanted);
    };
    return regs.orig_rax == calls[at].number && std::equal(args.begin(), args.end(), calls[at].args, is_wanted);
  };
  int status = 0;
  uint64_t ticks = 0;
  Ran ran;
  do {
    if (ptrace(PTRACE_CONT, tid, nullptr, nullptr) != 0 || !wait_for(tid, status) || !WIFSTOPPED(status)) {
      return Error{"a stub process ended unexpectedly"};
    }
    // Other signals (a terminal's Ctrl-C) come from outside.
    siginfo_t info{};
    if (status >> 16 == 0) ptrace(PTRACE_GETSIGINFO, tid, nullptr, &info);
    ticks += info.si_signo == SIGXCPU;
    if (at_birth(status)) {
      unsigned long made = 0;
      if (ptrace(PTRACE_GETEVENTMSG, tid, nullptr, &made) != 0) return errno_error("cannot trace a stub's child");
      ran.made = static_cast<pid_t>(made);
    }
    const bool faulted = caused_by_instruction(info) && !at_trap(status);
    const bool other_call = at_filter(status) && !(get_regs(tid, regs) && is_next());
    if (faulted || other_call || ticks == kMostTicks)
      return Error{"the re-driven code has changed what the replay executes beside it", Status::damaged};
  } while (!at_trap(status));
  if (!get_regs(tid, ran.regs)) return errno_error("cannot read a stub's registers");
  if (!set_regs(tid, saved)) return errno_error("cannot set a stub's registers");
  return ran;
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

Result<pid_t> Stub::add_thread(pid_t tid) const {
  return clone(tid, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM);
}

Result<Stub> Stub::fork(pid_t tid, uint64_t flags) const {
  Stub child;
  ASSIGN_OR_RETURN(child.pid_, clone(tid, flags));
  TRY(child.begin());
  TRY(child.give_socket(*this));
  return child;
}

Result<void> Stub::give_socket(const Stub& parent) {
  const std::string doing = "give a stub process a socket";
  ASSIGN_OR_RETURN(Sockets sockets, make_sockets());
  StubCalls calls(*this, pid_);
  TRY(calls.receive(doing, std::move(sockets.its)));
  TRY(calls.push(doing, SYS_dup2, {kReceived, kSocket}));
  // The first call still takes it from the parent's socket.
  files_ = Fd(fcntl(parent.files_.get(), F_DUPFD_CLOEXEC, 0));
  TRY(calls.run());
  files_ = std::move(sockets.ours);
  return {};
}

Result<void> Stub::map_file(pid_t tid, const std::string& path, Address start, uint64_t length, int protection,
                            int flags, uint64_t offset) const {
  StubCalls calls(*this, tid);
  TRY(calls.map_file(path, start, length, protection, flags, offset));
  TRY(calls.run());
  return {};
}

Result<void> Stub::map_anonymous(pid_t tid, Address start, uint64_t length, int protection, int flags) const {
  StubCalls calls(*this, tid);
  TRY(calls.map_anonymous(start, length, protection, flags));
  TRY(calls.run());
  return {};
}

Result<void> Stub::unmap(pid_t tid, Address start, uint64_t length) const {
  StubCalls calls(*this, tid);
  TRY(calls.unmap(start, length));
  TRY(calls.run());
  return {};
}

Result<void> Stub::describe(pid_t tid, const LocalDescriptor& descriptor) const {
  constexpr uint64_t kWrite = 0x11;
  if (!memory_.put(kScratch, descriptor)) return errno_error("cannot write to a stub");
  ASSIGN_OR_RETURN(const int64_t result, call(tid, SYS_modify_ldt, {kWrite, kScratch, sizeof descriptor}));
  const auto made = static_cast<int>(result);  // the call returns an int
  if (made == 0) return {};
  return Error{"cannot describe a segment in a stub (modify_ldt): " + std::string(std::strerror(-made))};
}

Result<void> StubCalls::add(std::string doing, long number, std::initializer_list<uint64_t> args) {
  close();
  return push(std::move(doing), number, args);
}

// Closes the file that was received last, if it is still open. There is always room for that.
void StubCalls::close() {
  if (open_.empty()) return;
  calls_.push_back({SYS_close, {kReceived}});
  doing_.push_back("close " + std::exchange(open_, {}));
}

Result<void> StubCalls::push(std::string doing, long number, std::initializer_list<uint64_t> args) {
  if (calls_.size() + 2 > kMostCalls) TRY(run());
  Stub::Call call{static_cast<uint64_t>(number), {}};
  std::copy(args.begin(), args.end(), call.args);
  if (is_forbidden(number, call.args)) return forbidden_call();
  calls_.push_back(call);
  doing_.push_back(std::move(doing));
  return {};
}

Result<void> StubCalls::receive(std::string doing, Fd file) {
  open_ = doing;
  files_.push_back(std::move(file));
  return push(std::move(doing), SYS_recvmsg, {kSocket, kReceiving, 0});
}

Result<void> StubCalls::map_file(const std::string& path, Address start, uint64_t length, int protection, int flags,
                                 uint64_t offset) {
  const int mode = (flags & MAP_TYPE) == MAP_SHARED ? O_RDWR : O_RDONLY;
  constexpr size_t kCalls = 4;  // an open file is closed, two calls are added, and the received file is closed
  const std::string doing = "map " + path;
  if (calls_.size() + kCalls > kMostCalls) TRY(run());
  if (open_ != doing || open_mode_ != mode) {
    close();
    Fd file(::open(path.c_str(), mode | O_CLOEXEC));
    if (!file) return errno_error("cannot " + doing);
    TRY(receive(doing, std::move(file)));
    open_mode_ = mode;
  }
  return push(
      doing, SYS_mmap,
      {start, length, static_cast<uint64_t>(protection), static_cast<uint64_t>(flags | MAP_FIXED), kReceived, offset});
}

Result<void> Calls::map_anonymous(Address start, uint64_t length, int protection, int flags) {
  return add("map memory in a stub", SYS_mmap,
             {start, length, static_cast<uint64_t>(protection),
              static_cast<uint64_t>(flags | MAP_FIXED | MAP_ANONYMOUS), ~0ull, 0});
}

Result<void> Calls::unmap(Address start, uint64_t length) {
  return add("unmap memory in a stub", SYS_munmap, {start, length});
}

Result<int64_t> StubCalls::run() {
  static_assert(sizeof(Stub::Call) == kCallSize);
  if (calls_.empty()) return 0;
  close();
  // If a call failed, the files of later calls were not received.
  int unread = 0;
  if (!files_.empty() && (ioctl(stub_.files_.get(), SIOCOUTQ, &unread) != 0 || unread > 0))
    return Error{"cannot send files to a stub, which has not received those before"};
  for (const Fd& file : files_) {
    if (!pass_fd(stub_.files_.get(), file.get())) return errno_error("cannot send a file to a stub");
  }
  Receiving receiving = Receiving::at(kReceiving);
  MemoryPiece pieces[] = {
      {kScratch, reinterpret_cast<uint8_t*>(calls_.data()), calls_.size() * sizeof(Stub::Call)},
      {kReceiving, reinterpret_cast<uint8_t*>(&receiving), sizeof receiving},
  };
  if (!stub_.memory().write(std::span(pieces).first(files_.empty() ? 1 : 2)))
    return errno_error("cannot write to a stub");
  ASSIGN_OR_RETURN(const Stub::Ran ran, stub_.run(tid_, list_code(), {}, calls_));
  const auto result = static_cast<int64_t>(ran.regs.rax);
  const size_t made = (ran.regs.rbx - kScratch) / kCallSize;
  if (made < calls_.size()) {
    return Error{"cannot " + doing_[made] + ": " + std::strerror(static_cast<int>(-result))};
  }
  calls_.clear();
  doing_.clear();
  files_.clear();
  return result;
}

}  // namespace redrive
