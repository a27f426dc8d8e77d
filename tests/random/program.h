// Shared by the parts of the random program. A program is made from a seed: processes, threads in each, and a list of
// actions for each thread. An action is a small scenario that checks itself. All its random choices come from a
// generator of its own, so that leaving out other actions does not change it. How actions interleave is up to the
// kernel.
//
// Signals: a thread's own real-time signals (Actor::signal) are blocked in all threads until an action unblocks them in
// its thread. SIGALRM may come at any time in any thread, so calls that can sleep go through `again`. What needs
// dispositions of the whole process is done in a forked child.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>

#include <cerrno>
#include <functional>
#include <source_location>
#include <string>
#include <vector>

#include "../programs/test.h"

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  int below(int n) { return static_cast<int>(next() % static_cast<uint64_t>(n)); }
  int between(int low, int high) { return low + below(high - low + 1); }  // both included
  bool coin() { return below(2) == 0; }

 private:
  uint64_t state_;
};

// One thread of the program, inside one action.
struct Actor {
  Random random;
  int process = 0, thread = 0, action = 0;
  int signal = 0;  // two real-time signals of its own: this and the next
  uint64_t observed =
      0;  // all that calls have answered, whether or not it could have been different: a replay must come to the same

  void note(uint64_t value) { observed = (observed ^ value) * 1099511628211ull + 1; }
  std::string file_name(const char* what) const;  // unlike those of all other actions
};

struct Action {
  const char* name;
  uint64_t (*run)(Actor&);  // returns what depends on the seed alone
};

const std::vector<Action>& channel_actions();
const std::vector<Action>& memory_actions();
const std::vector<Action>& file_actions();
const std::vector<Action>& signal_actions();
const std::vector<Action>& thread_actions();
const std::vector<Action>& process_actions();

// A call that is repeated if a signal interrupted it.
template <typename Call>
auto again(Actor& actor, Call call, std::source_location from = std::source_location::current()) {
  auto result = call();
  while (result < 0 && errno == EINTR) {
    actor.note(EINTR);
    result = call();
  }
  if (result < 0) check_failed(from.file_name(), static_cast<int>(from.line()), from.function_name());
  actor.note(static_cast<uint64_t>(result));
  return result;
}

uint64_t hash_of(const void* data, size_t size, uint64_t start = 14695981039346656037ull);
unsigned char pattern(uint64_t seed, uint64_t offset);
void fill_pattern(std::vector<unsigned char>& data, uint64_t seed, uint64_t offset = 0);

// Forks a child that does `work` and exits with the result. It is the child of a threaded process, so it must not use
// locks or write output.
pid_t start_child(const std::function<int()>& work);
void expect_exit(Actor& actor, pid_t child, int status);
void run_in_child(Actor& actor, const std::function<int()>& work);

// The path of the random program's own binary, for executing it again.
std::string own_binary();

// Uses the processor for some microseconds, without a system call.
void spend(int microseconds);

void write_fully(Actor& actor, int fd, const void* data, size_t size);
void read_fully(Actor& actor, int fd, void* data, size_t size);

// Called when the random program was executed by itself: `argv[1]` is "--helper". Never returns.
[[noreturn]] void run_helper(int count, char** arguments);

// A range in which writes of this thread fault; the process's SIGSEGV handler then makes the page writable.
struct FaultRange {
  unsigned char* begin = nullptr;
  size_t size = 0;
  int faults = 0;
};
extern thread_local FaultRange fault_range;
void install_fault_handler();
