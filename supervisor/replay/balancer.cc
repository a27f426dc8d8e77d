#include "supervisor/replay/balancer.h"

#include <fmt/format.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <sstream>
#include <utility>

#include "base/brief_file.h"
#include "base/procfs.h"
#include "supervisor/tier/first_processor.h"

namespace redrive {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kBalancePeriod = std::chrono::milliseconds(2);
constexpr auto kStalledAfter = std::chrono::seconds(1);
constexpr unsigned kIdleLooks = 4;  // each so many looks at which something could move, it is asked who waits
// A processor on which less than this part of the time was used is free; who used more than this computes.
constexpr double kFree = 0.3, kComputes = 0.15;

// clock_getcpuclockid(3), pthread_getcpuclockid(3): bit 2 means one thread, and the rest is the number, inverted.
uint64_t clock_ns(pid_t number, bool thread) {
  constexpr unsigned kSched = 2, kOneThread = 4;
  const auto clock = static_cast<clockid_t>(~static_cast<unsigned>(number) << 3 | kSched | (thread ? kOneThread : 0));
  timespec time{};
  if (clock_gettime(clock, &time) != 0) return 0;  // it has ended
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// Our threads, and those of their children: the stubs.
void release_all(const std::vector<int>& processors) {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const int processor : processors) CPU_SET(static_cast<size_t>(processor), &all);
  for (const pid_t own : proc_threads(getpid())) {
    sched_setaffinity(own, sizeof all, &all);
    std::istringstream children(read_briefly(proc_path(getpid(), fmt::format("task/{}/children", own))));
    for (pid_t child; children >> child;) {
      for (const pid_t tid : proc_threads(child)) sched_setaffinity(tid, sizeof all, &all);
    }
  }
}

}  // namespace

// ---- Seats

Seat::Seat(int processor, int first, std::function<void(int)> moved)
    : thread_(gettid()), first_(first), moved_(std::move(moved)), processor_(processor) {
  const cpu_set_t here = only(processor);
  sched_setaffinity(0, sizeof here, &here);
}

int Seat::processor() const {
  const Lock lock(mutex_);
  return processor_;
}

void Seat::place(pid_t process) const {
  const cpu_set_t here = only(processor_);
  for (const pid_t tid : proc_threads(process)) sched_setaffinity(tid, sizeof here, &here);
}

void Seat::add(pid_t process) {
  const Lock lock(mutex_);
  processes_[process] = clock_ns(process, false);
  place(process);  // the thread may have been moved since it asked for the process
}

void Seat::remove(pid_t process) {
  const Lock lock(mutex_);
  const auto known = processes_.find(process);
  if (known == processes_.end()) return;
  removed_ns_ += std::max(clock_ns(process, false), known->second) - known->second;
  processes_.erase(known);
}

void Seat::move_to(int processor) {
  processor_ = processor;
  const cpu_set_t here = only(processor);
  sched_setaffinity(thread_, sizeof here, &here);
  for (const auto& [process, before] : processes_) place(process);
}

void Seat::move(int processor) {
  {
    const Lock lock(mutex_);
    if (stays_here()) return;
    move_to(processor);
  }
  if (moved_) moved_(processor);
}

void Seat::stay_on_first(uint64_t cpu_ns) {
  {
    const Lock lock(mutex_);
    stays_until_ns_ = used_ns() + cpu_ns;
    if (processor_ == first_) return;
    move_to(first_);
  }
  if (moved_) moved_(first_);
}

bool Seat::stays() const {
  const Lock lock(mutex_);
  return stays_here();
}

bool Seat::stays_here() const { return stays_until_ns_ > 0 && used_ns() < stays_until_ns_; }

uint64_t Seat::cpu_ns() const {
  const Lock lock(mutex_);
  return used_ns();
}

bool Seat::is_runnable() const {
  const auto runs = [](pid_t tid) { return proc_stat_field(tid, 3) == "R"; };
  if (runs(thread_)) return true;
  const Lock lock(mutex_);
  return std::any_of(processes_.begin(), processes_.end(), [&](const auto& process) { return runs(process.first); });
}

uint64_t Seat::used_ns() const {
  uint64_t used_ns = clock_ns(thread_, true) + removed_ns_;
  for (const auto& [process, before] : processes_) {
    used_ns += std::max(clock_ns(process, false), before) - before;
  }
  return used_ns;
}

// ---- Balance

namespace {

bool computes(const SeatUse& use, uint64_t elapsed_ns) {
  return use.waits || static_cast<double>(use.cpu_ns) >= kComputes * static_cast<double>(elapsed_ns);
}

std::set<int> free_processors(const std::vector<SeatUse>& uses, const std::vector<int>& processors,
                              uint64_t elapsed_ns) {
  std::map<int, uint64_t> used_ns;
  for (const int processor : processors) used_ns[processor] = 0;
  for (const SeatUse& use : uses) used_ns[use.processor] += use.cpu_ns;
  std::set<int> free;
  for (const auto& [processor, its_ns] : used_ns) {
    if (static_cast<double>(its_ns) < kFree * static_cast<double>(elapsed_ns)) free.insert(processor);
  }
  return free;
}

}  // namespace

std::vector<SeatMove> balance(const std::vector<SeatUse>& uses, const std::vector<int>& processors,
                              uint64_t elapsed_ns) {
  std::map<int, std::vector<size_t>> movable;  // those that compute, by processor
  std::map<int, size_t> computing;             // how many, with those that stay
  for (const int processor : processors) computing[processor] = 0;
  for (size_t seat = 0; seat < uses.size(); ++seat) {
    if (!computes(uses[seat], elapsed_ns)) continue;
    ++computing[uses[seat].processor];
    if (!uses[seat].stays) movable[uses[seat].processor].push_back(seat);
  }
  std::vector<SeatMove> moves;
  // Takes one from where the most compute, if at least so many do.
  const auto take = [&](int to, size_t at_least) {
    const auto is_less_crowded = [&](const auto& a, const auto& b) { return computing[a.first] < computing[b.first]; };
    const auto crowded = std::max_element(movable.begin(), movable.end(), is_less_crowded);
    if (crowded == movable.end() || computing[crowded->first] < at_least) return;
    moves.push_back({crowded->second.back(), to});
    --computing[crowded->first];
    ++computing[to];
    crowded->second.pop_back();
    if (crowded->second.empty()) movable.erase(crowded);
  };
  for (const int free : free_processors(uses, processors, elapsed_ns)) take(free, 2);
  if (!moves.empty()) return moves;
  const auto least = std::min_element(computing.begin(), computing.end(),
                                      [](const auto& a, const auto& b) { return a.second < b.second; });
  if (least != computing.end()) take(least->first, least->second + 2);
  return moves;
}

// ---- The thread that looks

Balancer::Balancer(const std::vector<int>& processors, std::function<uint64_t()> progress)
    : processors_(processors), progress_(std::move(progress)), thread_([this] { run(); }) {}

Balancer::~Balancer() {
  {
    const Lock lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Balancer::add(Seat& seat) {
  {
    const Lock lock(mutex_);
    seats_[&seat] = seat.cpu_ns();
  }
  changed_.notify_all();
}

void Balancer::remove(Seat& seat) {
  const Lock lock(mutex_);
  seats_.erase(&seat);
}

void Balancer::run() {
  const bool several = std::set<int>(processors_.begin(), processors_.end()).size() > 1;
  uint64_t before = progress_();
  auto looked = Clock::now(), got_on = looked;
  const Lock lock(mutex_);
  while (!is_over_) {
    const bool balances = several && seats_.size() > 1;
    changed_.wait_for(mutex_,
                      balances ? std::chrono::nanoseconds(kBalancePeriod) : std::chrono::nanoseconds(kStalledAfter));
    const auto now = Clock::now();
    if (balances && now - looked >= kBalancePeriod) {
      move_some(static_cast<uint64_t>(std::chrono::nanoseconds(now - looked).count()));
      looked = now;
    }
    if (now - got_on < kStalledAfter) continue;
    const uint64_t progress = progress_();
    if (progress == std::exchange(before, progress)) release_all(processors_);
    got_on = now;
  }
}

void Balancer::move_some(uint64_t elapsed_ns) {
  std::vector<Seat*> seats;
  std::vector<SeatUse> uses;
  for (auto& [seat, before_ns] : seats_) {
    const uint64_t now_ns = seat->cpu_ns();
    seats.push_back(seat);
    uses.push_back({seat->processor(), now_ns - std::min(now_ns, std::exchange(before_ns, now_ns)), seat->stays()});
  }
  const bool has_free = !free_processors(uses, processors_, elapsed_ns).empty();
  std::vector<SeatMove> moves = balance(uses, processors_, elapsed_ns);
  const bool is_uneven = !has_free && !moves.empty();
  idle_looks_ = has_free || is_uneven ? idle_looks_ + 1 : 0;
  if (idle_looks_ % kIdleLooks == 1) {
    note_waiting(seats, uses, elapsed_ns);
    moves = balance(uses, processors_, elapsed_ns);
  } else if (is_uneven) {
    moves.clear();
  }
  for (const SeatMove& move : moves) seats[move.seat]->move(move.to);
}

// A processor that many share may have run only one of them since the last look. It takes a few microseconds for each
// to ask.
void Balancer::note_waiting(const std::vector<Seat*>& seats, std::vector<SeatUse>& uses, uint64_t elapsed_ns) {
  for (size_t i = 0; i < uses.size(); ++i) {
    uses[i].waits = !computes(uses[i], elapsed_ns) && seats[i]->is_runnable();
  }
}

}  // namespace redrive
