#include "supervisor/replay/divergence.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/unit_test.h"

namespace redrive::divergence_test {

// A function as in a stripped file: without a symbol, after one that has a symbol. It stops its process.
asm(R"(
  .pushsection .text
  .globl redrive_test_neighbour
  .type redrive_test_neighbour, @function
redrive_test_neighbour:
  .cfi_startproc
  ret
  .cfi_endproc
  .size redrive_test_neighbour, . - redrive_test_neighbour
.Lstripped:
  .cfi_startproc
  int3
  ret
  .cfi_endproc
  .popsection
  .pushsection .data
  .globl redrive_test_stripped
redrive_test_stripped:
  .quad .Lstripped
  .popsection
)");
extern "C" void (*redrive_test_stripped)();

extern "C" [[gnu::noinline]] void redrive_test_caller() {
  redrive_test_stripped();
  asm volatile("");  // not a tail call
}

TEST_CASE("a stack names functions, and places in files where no symbol covers them") {
  const pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    redrive_test_caller();
    _exit(1);
  }
  int status = 0;
  REQUIRE_EQ(waitpid(child, &status, 0), child);
  REQUIRE(WIFSTOPPED(status));
  const std::string stack = stack_of(child, {});
  const std::string copied = stack_of(child, {{1, {1, "/bin/recorded", "unit_tests", 0}}});
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  CAPTURE(stack);
  CHECK(stack.find("redrive_test_neighbour") == std::string::npos);
  const size_t module = stack.find(" unit_tests+0x"), caller = stack.find(" redrive_test_caller+0x");
  CHECK(module < stack.find('\n'));
  CHECK(caller != std::string::npos);
  CHECK(module < caller);
  CHECK(copied.find(" recorded+0x") == module);
}

}  // namespace redrive::divergence_test
