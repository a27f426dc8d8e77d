#include "interceptors/trapped_instructions.h"

#include <cpuid.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

#include "tests/unit/unit_test.h"

namespace redrive::trapped_instructions_test {

namespace {

void execute_them() {
  unsigned a, b, c, d;
  __cpuid(1, a, b, c, d);
  __rdtsc();
}

void block(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

// How a process that runs this function ends, as a waitpid(2) status.
int ended(void (*run)()) {
  const pid_t child = fork();
  if (child == 0) {
    trap_own_instructions();
    run();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE(
    "instructions of the recorder's own that it has made fault are answered, or do not fault where they cannot be") {
  CHECK_EQ(ended(execute_them), 0);
#ifndef __SANITIZE_THREAD__  // it does not trap the counter
  const int unanswered = ended([] {
    block(SIGSEGV);
    execute_them();
  });
  const bool any_traps = ended([] {
    const ProcessorTraps traps = trap_own_instructions();
    _exit(traps.counter || traps.cpuid ? 1 : 0);
  });
  CHECK_EQ(WIFSIGNALED(unanswered), any_traps);
  CHECK_EQ(WTERMSIG(unanswered), any_traps ? SIGSEGV : 0);
#endif
  CHECK_EQ(ended([] {
             {
               const Untrapped untrapped;
               block(SIGSEGV);
               execute_them();
             }
             sigset_t none;
             sigemptyset(&none);
             pthread_sigmask(SIG_SETMASK, &none, nullptr);
             execute_them();
           }),
           0);
}

TEST_CASE("an instruction is the same with prefixes, if it is not longer than the processor allows") {
  const auto memory = Memory::open(getpid());
  REQUIRE(memory);
  const auto length = [&](std::initializer_list<uint8_t> prefixes, std::initializer_list<uint8_t> instruction) {
    Bytes code(prefixes);
    code.insert(code.end(), instruction);
    code.resize(code.size() + 4);
    const auto found = trapped_at(*memory, reinterpret_cast<Address>(code.data()));
    return found ? found->length : 0;
  };
  const std::initializer_list<uint8_t> rdtsc{0x0f, 0x31}, rdtscp{0x0f, 0x01, 0xf9}, cpuid{0x0f, 0xa2};
  CHECK_EQ(length({}, rdtsc), 2);
  CHECK_EQ(length({0x48}, rdtsc), 3);
  CHECK_EQ(length({0xf3}, rdtscp), 4);
  CHECK_EQ(length({0x66, 0x67, 0xf2, 0x2e, 0x4f}, cpuid), 7);
  CHECK_EQ(length({0xf0}, rdtsc), 0);  // lock
  CHECK_EQ(length({0x50}, rdtsc), 0);  // push
  const std::initializer_list<uint8_t> twelve{0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66};
  CHECK_EQ(length(twelve, rdtscp), 15);
  Bytes thirteen(twelve);
  thirteen.push_back(0x66);
  thirteen.insert(thirteen.end(), rdtscp);
  CHECK_FALSE(trapped_at(*memory, reinterpret_cast<Address>(thirteen.data())));
}

}  // namespace redrive::trapped_instructions_test
