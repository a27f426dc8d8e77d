// What a re-driven unit writes to standard output appears on ours, as far as its calls succeeded.
#include "supervisor/replay/shown_output.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "tests/unit/unit_test.h"

namespace redrive::shown_output_test {

namespace {

// Standard output is a pipe while this lives.
class Redirected {
 public:
  Redirected() : before_(dup(STDOUT_FILENO)) {
    int ends[2];
    REQUIRE_EQ(pipe(ends), 0);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
    read_ = ends[0];
  }
  ~Redirected() {
    restore();
    close(read_);
  }
  std::string text() {
    restore();
    char buffer[64];
    const ssize_t size = read(read_, buffer, sizeof buffer);
    return std::string(buffer, size > 0 ? static_cast<size_t>(size) : 0);
  }
  void skip(size_t size) {
    Bytes skipped(size);
    for (size_t done = 0; done < size;) done += static_cast<size_t>(read(read_, skipped.data(), size - done));
  }

 private:
  void restore() {
    if (before_ < 0) return;
    dup2(before_, STDOUT_FILENO);
    close(std::exchange(before_, -1));
  }
  int before_, read_ = -1;
};

constexpr Address kText = 0x1000;
const Bytes kBytes{'h', 'e', 'l', 'l', 'o'};

// A call of write(2) with `kBytes`, and its result.
Result<void> write_call(ShownOutput& output, uint64_t fd, int64_t result) {
  Event event;
  event.thread = 3;
  event.number = SYS_write;
  event.args = {fd, kText, kBytes.size()};
  const Memory::Piece piece{kText, kBytes};
  const Memory memory = Memory::of({&piece, 1});
  const SyscallRow* const row = find_row(SYS_write, event.args);
  REQUIRE(row);
  output.call_begins(event, *row, inputs(*row, event.args, memory), memory);
  return output.call_ends(event.thread, result);
}

std::string shown(uint64_t fd, int64_t result) {
  Redirected standard_output;
  ShownOutput output;
  CHECK(write_call(output, fd, result));
  return standard_output.text();
}

}  // namespace

TEST_CASE("shown output: as much as the call wrote") {
  CHECK_EQ(shown(STDOUT_FILENO, 5), "hello");
  CHECK_EQ(shown(STDOUT_FILENO, 2), "he");
  CHECK_EQ(shown(STDOUT_FILENO, 100), "hello");  // a trace can say anything
}

TEST_CASE("shown output: nothing of a call that failed, or wrote elsewhere") {
  CHECK_EQ(shown(STDOUT_FILENO, -32), "");
  CHECK_EQ(shown(7, 5), "");
}

TEST_CASE("shown output: nothing is shown twice, or by another thread's call") {
  Redirected standard_output;
  ShownOutput output;
  CHECK(write_call(output, STDOUT_FILENO, 5));
  CHECK(output.call_ends(3, 5));
  CHECK(output.call_ends(4, 5));
  CHECK_EQ(standard_output.text(), "hello");
}

TEST_CASE("shown output: a full pipe is waited for, and other errors are reported") {
  Redirected standard_output;
  fcntl(STDOUT_FILENO, F_SETFL, O_NONBLOCK);
  const Bytes filling(size_t{1} << 20);
  const ssize_t filled = write(STDOUT_FILENO, filling.data(), filling.size());
  std::thread reader([&] { standard_output.skip(static_cast<size_t>(filled)); });
  ShownOutput output;
  CHECK(write_call(output, STDOUT_FILENO, 5));
  reader.join();
  CHECK_EQ(standard_output.text(), "hello");

  Redirected full;
  dup2(open("/dev/full", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
  CHECK_FALSE(write_call(output, STDOUT_FILENO, 5));
}

}  // namespace redrive::shown_output_test
