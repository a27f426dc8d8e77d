// random_program SEED [--list] [--skip N,N,...]: a random program made from the seed, which checks itself. It ends with
// "ok", what it did, and a checksum that depends only on the seed and on what was skipped. The lines before that hold
// the answers of its calls, which may differ from run to run, but not between a recording and its replay.
//
// --list prints the numbers of all parts that --skip can leave out: features of the whole program, and actions. The
// remaining parts do not change. Processes of the program pass their state on in the arguments --process, --phase and
// --descriptors.
#include <spawn.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>

#include "program.h"

extern char** environ;

namespace {

constexpr int kStorm = 0, kShared = 1, kHalfway = 2, kComputing = 3, kFirstAction = 10, kMostProcesses = 5;
constexpr const char* kFeatures[] = {"a timer interrupts everything", "all processes share memory",
                                     "processes execute themselves halfway", "computing between actions"};

struct PlannedAction {
  int number, process, thread, phase;
  Action action;
};

struct Program {
  uint64_t seed = 0;
  std::set<int> skipped;
  std::set<int> features;
  int processes = 1;
  int parent[kMostProcesses] = {};
  int start[kMostProcesses] = {};  // fork, vfork, posix_spawn
  int threads[kMostProcesses] = {};
  int storm_us = 0;
  bool storm_restarts = false;
  std::vector<PlannedAction> actions;
  bool has(int feature) const { return features.contains(feature) && !skipped.contains(feature); }

  // Whether anything is left to do in a thread of the process; with thread -1, in the process or in those that it
  // starts.
  bool needs(int process, int thread) const {
    const bool here = std::any_of(actions.begin(), actions.end(), [&](const PlannedAction& planned) {
      return planned.process == process && (thread < 0 || planned.thread == thread) &&
             !skipped.contains(planned.number);
    });
    if (here || thread >= 0) return here;
    for (int child = process + 1; child < processes; child++) {
      if (parent[child] == process && needs(child, -1)) return true;
    }
    return false;
  }
};

Program plan(uint64_t seed) {
  Program made;
  made.seed = seed;
  Random random(seed);
  std::vector<Action> all;
  // Seeds of some kinds take their actions from few groups, so that these are combined more often.
  const std::vector<Action>* groups[] = {&channel_actions(), &memory_actions(), &file_actions(),
                                         &signal_actions(),  &thread_actions(), &process_actions()};
  const int group = random.below(3) == 0 ? 1 + random.below(63) : 63;
  for (size_t i = 0; i < std::size(groups); i++) {
    if (group & 1 << i) all.insert(all.end(), groups[i]->begin(), groups[i]->end());
  }
  if (random.below(3) == 0) made.features.insert(kStorm);
  if (random.below(4) == 0) made.features.insert(kShared);
  if (random.below(3) == 0) made.features.insert(kHalfway);
  if (random.coin()) made.features.insert(kComputing);
  made.storm_us = random.between(300, 5000);
  made.storm_restarts = random.coin();
  made.processes = random.between(1, kMostProcesses);
  int number = kFirstAction;
  for (int process = 0; process < made.processes; process++) {
    made.parent[process] = process == 0 ? -1 : random.below(process);
    made.start[process] = random.below(3);
    made.threads[process] = random.between(1, 4);
    for (int thread = 0; thread < made.threads[process]; thread++) {
      const int count = random.between(1, 6);
      for (int i = 0; i < count; i++) {
        made.actions.push_back({number++, process, thread, i >= count / 2, all[random.next() % all.size()]});
      }
    }
  }
  return made;
}

struct State {  // of one process of the program, as its arguments say
  int process = 0, phase = 0;
  int report = -1;  // descriptor for its result
  int shared = -1;  // descriptor of the memory that all share
  uint64_t checksum = 0;
};

struct SharedCounters {
  std::atomic<uint64_t> done;
  std::atomic<uint64_t> last[kMostProcesses];
};

std::atomic<int> storms;
void on_storm(int) { storms++; }

void set_storm(const Program& program, bool on) {
  if (!program.has(kStorm)) return;
  struct sigaction action = {};
  action.sa_handler = on_storm;
  action.sa_flags = program.storm_restarts ? SA_RESTART : 0;
  MUST(sigaction(SIGALRM, &action, nullptr));
  const itimerval every = {{0, on ? program.storm_us : 0}, {0, on ? program.storm_us : 0}};
  MUST(setitimer(ITIMER_REAL, &every, nullptr));
}

void block_own_signals() {
  sigset_t all;
  sigemptyset(&all);
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; signal++) sigaddset(&all, signal);
  MUST(sigprocmask(SIG_BLOCK, &all, nullptr));
}

std::vector<std::string> words_for(const Program& program, const State& state) {
  std::ostringstream skipped;
  for (const int number : program.skipped) skipped << number << ",";
  std::vector<std::string> words = {own_binary(), std::to_string(program.seed)};
  if (!program.skipped.empty()) words.insert(words.end(), {"--skip", skipped.str()});
  words.insert(words.end(), {"--state", std::to_string(state.process) + "," + std::to_string(state.phase) + "," +
                                            std::to_string(state.report) + "," + std::to_string(state.shared) + "," +
                                            std::to_string(state.checksum)});
  return words;
}

[[noreturn]] void execute(std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  _exit(95);
}

int run_process(const Program& program, State state);

struct Child {
  pid_t pid;
  int results;
};

Child start_process(const Program& program, const State& parent, int process) {
  int fds[2];
  MUST(pipe2(fds, O_CLOEXEC));
  MUST(fcntl(fds[1], F_SETFD, 0));
  State state = {process, 0, fds[1], parent.shared, 0};
  std::vector<std::string> words = words_for(program, state);
  pid_t child = -1;
  fflush(stdout);
  if (program.start[process] == 0) {
    child = MUST(fork());
    if (child == 0) {
      close(fds[0]);
      _exit(run_process(program, state));
    }
  } else if (program.start[process] == 1) {
    child = MUST(vfork());
    if (child == 0) execute(words);
  } else {
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    MUST0(posix_spawn(&child, arguments[0], nullptr, nullptr, arguments.data(), environ));
  }
  close(fds[1]);
  return {child, fds[0]};
}

struct ThreadResult {
  uint64_t checksum = 0, observed = 0;
};

ThreadResult run_thread(const Program& program, const State& state, int thread, SharedCounters* counters) {
  ThreadResult result;
  for (const PlannedAction& planned : program.actions) {
    if (planned.process != state.process || planned.thread != thread || program.skipped.contains(planned.number))
      continue;
    if (planned.phase != state.phase && program.has(kHalfway)) continue;
    Actor actor{Random(program.seed * 1000003 + static_cast<uint64_t>(planned.number)), planned.process, planned.thread,
                planned.number, SIGRTMIN + 1 + 2 * thread};
    if (program.has(kComputing)) spend(actor.random.below(1500));
    result.checksum += planned.action.run(actor) * static_cast<uint64_t>(planned.number);
    result.observed = result.observed * 31 + actor.observed;
    if (counters) {
      counters->done++;
      counters->last[state.process] = static_cast<uint64_t>(planned.number);
      result.observed += counters->last[(state.process + 1) % kMostProcesses];
    }
  }
  return result;
}

uint64_t run_threads(const Program& program, const State& state, SharedCounters* counters) {
  std::vector<ThreadResult> results(static_cast<size_t>(program.threads[state.process]));
  std::vector<std::thread> threads;
  for (size_t i = 1; i < results.size(); i++) {
    if (!program.needs(state.process, static_cast<int>(i))) continue;
    threads.emplace_back([&, i] { results[i] = run_thread(program, state, static_cast<int>(i), counters); });
  }
  results[0] = run_thread(program, state, 0, counters);
  for (auto& thread : threads) thread.join();
  ThreadResult sum;
  for (const ThreadResult& result : results) {
    sum.checksum += result.checksum;
    sum.observed = sum.observed * 31 + result.observed;
  }
  char line[120];
  const int size = snprintf(line, sizeof line, "process %d phase %d observed %016lx\n", state.process, state.phase,
                            sum.observed + static_cast<uint64_t>(storms));
  CHECK(write(1, line, static_cast<size_t>(size)) == size);
  return sum.checksum;
}

SharedCounters* map_shared(const State& state) {
  if (state.shared < 0) return nullptr;
  return static_cast<SharedCounters*>(MUST(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, state.shared, 0)));
}

// One process: runs its children and its threads, and combines their results. Returns its exit status.
int run_process(const Program& program, State state) {
  install_fault_handler();
  block_own_signals();
  SharedCounters* counters = map_shared(state);
  std::vector<Child> children;
  for (int process = 1; process < program.processes && state.phase == 0; process++) {
    if (program.parent[process] == state.process && program.needs(process, -1))
      children.push_back(start_process(program, state, process));
  }
  set_storm(program, true);
  state.checksum += run_threads(program, state, counters);
  Actor self{Random(0)};
  for (const Child& child : children) {
    uint64_t checksum = 0;
    expect_exit(self, child.pid, 0);
    read_fully(self, child.results, &checksum, sizeof checksum);
    close(child.results);
    state.checksum += checksum;
  }
  set_storm(program, false);
  if (program.has(kHalfway) && state.phase == 0) {
    state.phase = 1;
    std::vector<std::string> words = words_for(program, state);
    execute(words);
  }
  if (state.report >= 0) {
    write_fully(self, state.report, &state.checksum, sizeof state.checksum);
    return 0;
  }
  const auto done = std::count_if(program.actions.begin(), program.actions.end(),
                                  [&](const auto& planned) { return !program.skipped.contains(planned.number); });
  if (counters) CHECK(counters->done == static_cast<uint64_t>(done));
  char line[160];
  const int size = snprintf(line, sizeof line, "ok seed %lu: %d processes, %ld actions, checksum %016lx\n",
                            program.seed, program.processes, static_cast<long>(done), state.checksum);
  CHECK(write(1, line, static_cast<size_t>(size)) == size);
  return 0;
}

void list(const Program& program) {
  for (const int feature : program.features) printf("%d %s\n", feature, kFeatures[feature]);
  for (const PlannedAction& planned : program.actions) {
    printf("%d process %d (%s, of %d) thread %d: %s\n", planned.number, planned.process,
           std::array{"forked", "vforked", "spawned"}[static_cast<size_t>(program.start[planned.process])],
           program.parent[planned.process], planned.thread, planned.action.name);
  }
}

}  // namespace

int main(int count, char** words) {
  if (count > 1 && std::string(words[1]) == "--helper") run_helper(count - 2, words + 2);
  if (count < 2) return fprintf(stderr, "usage: random_program SEED [--list] [--skip N,N,...]\n"), 2;
  Program program = plan(strtoull(words[1], nullptr, 10));
  State state;
  for (int i = 2; i < count; i++) {
    const std::string option = words[i];
    if (option == "--list") return list(program), 0;
    CHECK(i + 1 < count);
    std::istringstream value(words[++i]);
    std::string part;
    if (option == "--skip") {
      while (std::getline(value, part, ',')) program.skipped.insert(atoi(part.c_str()));
    } else if (option == "--state") {
      char comma;
      value >> state.process >> comma >> state.phase >> comma >> state.report >> comma >> state.shared >> comma >>
          state.checksum;
    }
  }
  const bool first = state.process == 0 && state.phase == 0;
  if (first && program.has(kShared)) {
    state.shared = MUST(memfd_create("shared by all", 0));
    MUST(ftruncate(state.shared, 4096));
  }
  return run_process(program, state);
}
