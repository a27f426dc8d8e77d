// What becomes of calls that a program has forbidden itself, and how it does that. Its memory is this process's own.
#include "supervisor/record/tracees/confinement.h"

#include <linux/audit.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "tests/unit/unit_test.h"

namespace redrive::confinement_test {

namespace {

using Arguments = std::array<uint64_t, 6>;

struct Process {
  Process() {
    auto opened = Memory::open(getpid());
    REQUIRE(opened);
    memory = std::move(*opened);
  }
  Confinement::Verdict judge(int64_t number, const Arguments& args = {}) const {
    return confinement.judge({find_row(number, args), static_cast<uint64_t>(number), 0x1234, args});
  }
  Confinement::Reply ask(int64_t number, const Arguments& args) {
    const SyscallRow* const row = find_row(number, args);
    REQUIRE(row);
    REQUIRE_EQ(static_cast<int>(row->special), static_cast<int>(Special::seccomp));
    return confinement.answer({row, static_cast<uint64_t>(number), 0x1234, args}, {gettid(), memory, others});
  }
  // Has this done with calls of this number; all others are allowed.
  Confinement::Reply filter(uint32_t number, uint32_t answer, uint64_t flags = 0) {
    std::vector<sock_filter> program = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
                                        BPF_STMT(BPF_RET | BPF_K, answer),
                                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog header{static_cast<unsigned short>(program.size()), program.data()};
    return ask(SYS_seccomp, {SECCOMP_SET_MODE_FILTER, flags, reinterpret_cast<uint64_t>(&header)});
  }
  int64_t get_mode() { return ask(SYS_prctl, {PR_GET_SECCOMP}).result; }

  Memory memory;
  std::vector<Confinement::Other> others;
  Confinement confinement = Confinement(true);
};

template <typename Kind>
bool is(const Confinement::Verdict& verdict) {
  return std::holds_alternative<Kind>(verdict);
}

}  // namespace

TEST_CASE("nothing is forbidden at first") {
  Process process;
  CHECK(is<Confinement::Allowed>(process.judge(SYS_getpid)));
  CHECK(is<Confinement::Allowed>(process.judge(9999)));
  CHECK_EQ(process.confinement.filters(), 0);
  CHECK_EQ(process.confinement.restricted()[0], 0);
}

TEST_CASE("what filters answer about a call") {
  Process process;
  REQUIRE_EQ(process.filter(SYS_getpid, SECCOMP_RET_ERRNO | EPERM).result, 0);
  REQUIRE_EQ(process.filter(SYS_getuid, SECCOMP_RET_ERRNO | 0xffff).result, 0);
  REQUIRE_EQ(process.filter(SYS_getgid, SECCOMP_RET_TRACE).result, 0);
  REQUIRE_EQ(process.filter(SYS_geteuid, SECCOMP_RET_KILL_THREAD).result, 0);
  REQUIRE_EQ(process.filter(SYS_getegid, SECCOMP_RET_KILL_PROCESS).result, 0);
  REQUIRE_EQ(process.filter(SYS_getppid, SECCOMP_RET_TRAP | 5).result, 0);
  REQUIRE_EQ(process.filter(SYS_getpgrp, SECCOMP_RET_LOG).result, 0);
  CHECK_EQ(process.confinement.filters(), 7);
  CHECK_EQ(process.get_mode(), 2);

  const auto result = [&](int64_t number) { return std::get<Confinement::Answered>(process.judge(number)).result; };
  CHECK_EQ(result(SYS_getpid), -EPERM);
  CHECK_EQ(result(SYS_getuid), -4095);
  CHECK_EQ(result(SYS_getgid), -ENOSYS);
  const auto thread = std::get<Confinement::Fatal>(process.judge(SYS_geteuid));
  CHECK_EQ(thread.signal, SIGSYS);
  CHECK_FALSE(thread.whole_process);
  CHECK(std::get<Confinement::Fatal>(process.judge(SYS_getegid)).whole_process);
  const auto trapped = std::get<Confinement::Trapped>(process.judge(SYS_getppid));
  CHECK_EQ(trapped.result, SYS_getppid);
  CHECK_EQ(trapped.info.si_signo, SIGSYS);
  CHECK_EQ(trapped.info.si_errno, 5);
  CHECK_EQ(trapped.info.si_syscall, SYS_getppid);
  CHECK_EQ(reinterpret_cast<Address>(trapped.info.si_call_addr), 0x1234);
  CHECK(is<Confinement::Allowed>(process.judge(SYS_getpgrp)));
  CHECK(is<Confinement::Allowed>(process.judge(SYS_read)));
  const auto& restricted = process.confinement.restricted();
  CHECK((restricted[SYS_getpid / 64] >> SYS_getpid % 64 & 1));
  CHECK_FALSE((restricted[SYS_read / 64] >> SYS_read % 64 & 1));
}

TEST_CASE("calls that the program would not make without the recorder are not forbidden") {
  Process process;
  process.filter(SYS_restart_syscall, SECCOMP_RET_KILL_PROCESS);
  process.filter(SYS_clock_gettime, SECCOMP_RET_KILL_PROCESS);
  CHECK(is<Confinement::Allowed>(process.judge(SYS_restart_syscall)));
  CHECK(is<Confinement::Allowed>(process.judge(SYS_clock_gettime, {CLOCK_MONOTONIC})));
  CHECK(is<Confinement::Fatal>(process.judge(SYS_clock_gettime, {CLOCK_PROCESS_CPUTIME_ID})));
}

TEST_CASE("strict mode") {
  Process process;
  CHECK_EQ(process.ask(SYS_seccomp, {SECCOMP_SET_MODE_STRICT, 1}).result, -EINVAL);
  CHECK_EQ(process.ask(SYS_seccomp, {SECCOMP_SET_MODE_STRICT}).result, 0);
  CHECK(process.confinement.strict());
  CHECK(is<Confinement::Allowed>(process.judge(SYS_write)));
  const auto verdict = std::get<Confinement::Fatal>(process.judge(SYS_getpid));
  CHECK_EQ(verdict.signal, SIGKILL);
  CHECK_FALSE(verdict.whole_process);
  CHECK_EQ(process.confinement.restricted()[0], ~0ull);
  Process filtered;
  filtered.filter(SYS_getpid, SECCOMP_RET_KILL_THREAD);
  CHECK_EQ(filtered.ask(SYS_prctl, {PR_SET_SECCOMP, 1}).result, -EINVAL);
  CHECK_FALSE(filtered.confinement.strict());
}

TEST_CASE("privileges are given up before a filter is installed") {
  Process process;
  process.confinement = Confinement(false);
  const auto privileges = [&] { return process.ask(SYS_prctl, {PR_GET_NO_NEW_PRIVS}).result; };
  CHECK_EQ(privileges(), 0);
  if (geteuid() != 0) CHECK_EQ(process.filter(SYS_getpid, SECCOMP_RET_LOG).result, -EACCES);
  CHECK_EQ(process.ask(SYS_prctl, {PR_SET_NO_NEW_PRIVS, 2}).result, -EINVAL);
  CHECK_EQ(process.ask(SYS_prctl, {PR_SET_NO_NEW_PRIVS, 1, 0, 0, 1}).result, -EINVAL);
  CHECK_EQ(privileges(), 0);
  CHECK_EQ(process.ask(SYS_prctl, {PR_SET_NO_NEW_PRIVS, 1}).result, 0);
  CHECK_EQ(privileges(), 1);
  CHECK_EQ(process.filter(SYS_getpid, SECCOMP_RET_LOG).result, 0);
}

TEST_CASE("what the kernel would not take for a filter") {
  Process process;
  const auto install = [&](uint64_t flags, const sock_fprog* header) {
    return process.ask(SYS_seccomp, {SECCOMP_SET_MODE_FILTER, flags, reinterpret_cast<uint64_t>(header)});
  };
  CHECK_EQ(install(0, nullptr).result, -EFAULT);
  sock_filter program[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog empty{0, program}, nowhere{1, nullptr}, fine{1, program};
  CHECK_EQ(install(0, &empty).result, -EINVAL);
  CHECK_EQ(install(0, &nowhere).result, -EINVAL);
  // Somebody who would listen for the program's calls.
  const auto listener = install(SECCOMP_FILTER_FLAG_NEW_LISTENER, &fine);
  CHECK_EQ(listener.result, -EINVAL);
  CHECK(listener.refused);
  CHECK_FALSE(install(SECCOMP_FILTER_FLAG_NEW_LISTENER, nullptr).refused);
  program[0] = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);  // it does not return
  CHECK_EQ(install(0, &fine).result, -EINVAL);
  CHECK_EQ(process.confinement.filters(), 0);
}

TEST_CASE("which actions there are") {
  Process process;
  const auto available = [&](uint32_t action) {
    return process.ask(SYS_seccomp, {SECCOMP_GET_ACTION_AVAIL, 0, reinterpret_cast<uint64_t>(&action)}).result;
  };
  CHECK_EQ(available(SECCOMP_RET_TRAP), 0);
  CHECK_EQ(available(SECCOMP_RET_USER_NOTIF), -EOPNOTSUPP);
  CHECK_EQ(process.ask(SYS_seccomp, {SECCOMP_GET_ACTION_AVAIL, 0, 8}).result, -EFAULT);
}

TEST_CASE("a filter for all threads of the process") {
  Process process;
  Confinement other;
  process.others = {{77, &other}};
  CHECK_EQ(process.filter(SYS_getpid, SECCOMP_RET_KILL_THREAD, SECCOMP_FILTER_FLAG_TSYNC).result, 0);
  CHECK_EQ(other.filters(), 1);
  CHECK(other.no_new_privileges());
  Process alone;
  alone.confinement = other;
  alone.filter(SYS_getuid, SECCOMP_RET_KILL_THREAD);
  other = alone.confinement;
  // It has one that this thread does not have.
  CHECK_EQ(process.filter(SYS_getgid, SECCOMP_RET_LOG, SECCOMP_FILTER_FLAG_TSYNC).result, 77);
  const uint64_t as_error = SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH;
  CHECK_EQ(process.filter(SYS_getgid, SECCOMP_RET_LOG, as_error).result, -ESRCH);
  CHECK_EQ(process.confinement.filters(), 1);
  CHECK_EQ(other.filters(), 2);
}

}  // namespace redrive::confinement_test
