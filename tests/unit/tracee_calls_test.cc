// Calls that threads make for the recorder, on the fake tracer.
#include "supervisor/record/kernel/tracee_calls.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "tests/unit/fake_tracer.h"
#include "tests/unit/unit_test.h"

namespace redrive::tracee_calls_test {

namespace {

constexpr pid_t kTid = 10;
constexpr Address kInstruction = 0x7000;

// A thread that is stopped, and then comes to these stops.
struct Thread {
  explicit Thread(std::vector<Stop> script) {
    script.insert(script.begin(), Interrupted{});
    tracer.add(kTid, std::move(script));
    tracer.wait(kTid);
    tracer.asked.clear();
    base.rsp = 0x9000;
    base.rax = 77;
  }
  TraceeCalls::Caller caller() { return {kTid, signals}; }
  Result<int64_t> call(long number, std::initializer_list<uint64_t> args) {
    return calls.call_at(caller(), kInstruction, base, number, args);
  }
  const user_regs_struct& regs() { return tracer.find(kTid)->regs; }

  FakeTracer tracer;
  HeldSignals signals;
  user_regs_struct base{};
  std::optional<Stop> last;
  user_regs_struct called{};  // at the exit of the last call
  // The kernel's part: the result of a call, and registers behind several of them.
  int64_t result = 0;
  Address stands_at = 0;
  TraceeCalls calls{tracer, [this](pid_t tid) -> std::optional<Stop> {
                      last = tracer.wait(tid);
                      if (!last || is<Gone>(*last)) return {};
                      auto& its = tracer.find(tid)->regs;
                      if (is<SyscallExit>(*last)) called = its, its.rax = static_cast<uint64_t>(result);
                      if (is<SyscallEntry>(*last) && stands_at) its.rip = std::exchange(stands_at, 0x4000);
                      return last;
                    }};
};

}  // namespace

TEST_CASE("a call at an instruction of the program's") {
  Thread thread({SyscallEntry{}, SyscallExit{}});
  thread.result = -ENOENT;
  const auto made = thread.call(SYS_openat, {1, 2, 3});
  REQUIRE(made);
  CHECK_EQ(*made, -ENOENT);
  CHECK_EQ(thread.called.rip, kInstruction);
  CHECK_EQ(thread.called.orig_rax, SYS_openat);
  CHECK_EQ(thread.called.rsi, 2);
  CHECK_EQ(thread.called.rsp, 0x9000);
  CHECK_EQ(thread.regs().rax, 77);
  CHECK_EQ(thread.regs().rsi, 0);
  CHECK_EQ(thread.tracer.asked, std::vector<std::string>{"10: cont", "10: to syscall exit"});
  CHECK(thread.signals.empty());
}

TEST_CASE("signals that come amid a call are held") {
  Thread thread({SignalStop{SIGUSR1}, SyscallEntry{}, SignalStop{SIGUSR2}, SyscallExit{}});
  thread.result = 5;
  CHECK_EQ(*thread.call(SYS_dup, {1}), 5);
  thread.signals.raise(thread.tracer, kTid, kTid, SignalTurns());
  CHECK_FALSE(thread.tracer.asked.empty());
  const std::vector<std::string> resumed(thread.tracer.asked.begin(), thread.tracer.asked.begin() + 4);
  CHECK_EQ(resumed, std::vector<std::string>{"10: cont", "10: cont", "10: to syscall exit", "10: to syscall exit"});
}

TEST_CASE("a thread that is killed amid a call") {
  Thread thread({SyscallEntry{}, Gone{{0, SIGKILL}}});
  CHECK_FALSE(thread.call(SYS_dup, {1}));
}

TEST_CASE("several calls with the tier's code") {
  const auto arena = GateArena::make();
  REQUIRE(arena);
  const gate::Header& header = (*arena)->header();
  Thread thread({Birth{11}, SyscallEntry{}, SyscallEntry{}});
  thread.stands_at = header.injected;  // first one that is not made unseen, then the end
  pid_t born = -1;
  const auto made = thread.calls.make_from(**arena, thread.caller(), thread.base, header.inject,
                                           {{SYS_clone, {}}, {SYS_close, {3}}}, &born);
  REQUIRE(made);
  CHECK_EQ(born, 11);
  CHECK_EQ(made->rip, 0x4000);
  CHECK_EQ(made->rbx - made->rbp, 2 * sizeof(gate::InjectedCall));
  CHECK_EQ(made->rsp, 0x9000);
  CHECK_EQ(thread.tracer.asked.size(), 3);

  Thread killed({Gone{{0, SIGKILL}}});
  CHECK_FALSE(killed.calls.make(**arena, killed.caller(), killed.base, {{SYS_close, {3}}}));
}

TEST_CASE("a thread that blocks SIGTRAP does not while it is stepped out of a range, and has its mask then") {
  FakeTracer tracer;
  FakeTracer::Tracee& tracee = tracer.add(kTid, {Interrupted{}, SignalStop{SIGTRAP}, SignalStop{SIGTRAP}});
  tracer.wait(kTid);
  tracee.siginfo.si_code = TRAP_TRACE;
  tracee.regs.rip = kInstruction;
  tracee.signal_mask = bit_of(SIGTRAP) | bit_of(SIGTERM);
  HeldSignals signals;
  TraceeCalls calls(tracer, [&](pid_t tid) {
    CHECK_EQ(tracee.signal_mask & bit_of(SIGTRAP), 0);
    const auto stop = tracer.wait(tid);
    tracee.regs.rip += 0x80;
    return stop;
  });
  CHECK(calls.step_out({kTid, signals}, Memory(), {kInstruction, kInstruction + 0x100}, kInstruction));
  CHECK_EQ(tracee.regs.rip, kInstruction + 0x100);
  CHECK_EQ(tracee.signal_mask, bit_of(SIGTRAP) | bit_of(SIGTERM));
  CHECK(signals.empty());
}

TEST_CASE("a syscall instruction in the vDSO") {
  Bytes code(2 * kPageSize, 0x90);
  const auto memory = Memory::open(getpid());
  REQUIRE(memory);
  const auto at = reinterpret_cast<Address>(code.data());
  CHECK_EQ(vdso_syscall(*memory, at), 0);
  code[300] = 0x0f, code[301] = 0x05;
  CHECK_EQ(vdso_syscall(*memory, at), at + 300);
  CHECK_EQ(vdso_syscall(*memory, 0), 0);
}

}  // namespace redrive::tracee_calls_test
