#include "supervisor/record/placement/placer.h"

#include <sched.h>
#include <sys/syscall.h>

#include <algorithm>

#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/record/tracees/tracees.h"
#include "supervisor/tier/first_processor.h"

namespace redrive {
namespace {

using namespace std::chrono_literals;

constexpr auto kPlaced = 3500us;  // from one look at where units run to the next

// A unit that has used less CPU time than this since the last look, or less than this part of a processor, is left
// alone.
constexpr uint64_t kUsed = 100'000;
constexpr uint64_t kLeastPart = 50;

constexpr uint64_t kOften = 1'000'000;  // sleeps

}  // namespace

void Placer::place_units() {
  for (auto& [id, unit] : tracees_.units()) {
    uint64_t& until_ns = unit->place.first_until_ns;
    if (!until_ns || unit->clock.cpu_ns() < until_ns) continue;
    until_ns = 0;
    place(*unit);
  }
  const auto now = tracer_.now();
  precedence_.look(now);
  if (placement_.one_processor() || now - placed_ < kPlaced) return;
  const auto elapsed_ns = static_cast<uint64_t>(std::chrono::nanoseconds(now - std::exchange(placed_, now)).count());
  std::vector<UnitUse> uses;
  std::vector<Unit*> users;
  for (auto& [id, unit] : tracees_.units()) {
    Place& place = unit->place;
    const uint64_t cpu = unit->clock.cpu_ns();
    UnitUse use{&place, cpu - std::exchange(place.cpu_ns, cpu)};
    if (use.cpu_ns < std::max(kUsed, elapsed_ns / kLeastPart)) continue;
    const pid_t tid = unit->baton.is_held() ? unit->baton.holder()->tid : -1;
    const bool other = tid < 0 || std::exchange(place.tid, tid) != tid;
    const uint64_t sleeps = tid < 0 ? 0 : sleeps_of(tid), waited_ns = tid < 0 ? 0 : waited_ns_of(tid);
    // Threads that take turns stop to do so.
    use.sleeps = other ? kOften : sleeps - place.sleeps;
    use.waited_ns = other ? 0 : waited_ns - std::min(waited_ns, place.waited_ns);
    place.sleeps = sleeps;
    place.waited_ns = waited_ns;
    uses.push_back(use);
    users.push_back(unit.get());
  }
  crowded_ = placement_.decide(uses, elapsed_ns) > 1;
  for (size_t i = 0; i < uses.size(); ++i) {
    if (uses[i].moved) place(*users[i]);
  }
}

void Placer::place_program(Unit& unit) const {
  if (placement_.one_processor()) return;
  size_t home = 0, away = 0;
  for (const auto& [id, other] : tracees_.units()) {
    const Thread* const holder = other->baton.holder();
    if (other.get() == &unit || !holder || !holder->is<Thread::User>()) continue;
    const gate::Slot* const slot = slot_of(*holder);
    if (!slot || slot->phase != gate::Phase::kernel) ++(other->place.away ? away : home);
  }
  constexpr unsigned kSettles = 2;
  if (!placement_.begins_away(home, away)) return;
  unit.place.away = true;
  unit.place.settles = kSettles;
  place(unit);
}

void Placer::place(const Unit& unit) const {
  for (const auto& [serial, thread] : unit.threads) placement_.send(thread->tid, unit.place);
}

void Placer::place_writer_of_code(Unit& unit) const {
  unit.place.first_until_ns = unit.clock.cpu_ns() + kCodeSettles_ns;
  place(unit);
}

int64_t Placer::answer_processors(const Thread& thread, int64_t result) {
  const Memory& memory = thread.process->memory;
  if (thread.call.row->number == SYS_getcpu) {
    SeenProcessors::get_processor(thread.processors, thread.call.args, memory);
    return result;
  }
  const Thread* const named = tracees_.find(tid_named(thread, thread.call.args[0]));
  return named ? processors_.get_affinity(named->processors, thread.call.args, memory, result) : result;
}

int64_t Placer::move_to_processors(const Thread& thread, int64_t result) {
  if (!processors_.count() && result != 0) return result;
  Thread* const moved = tracees_.find(tid_named(thread, thread.call.args[0]));
  if (!moved) return result;
  if (processors_.count()) {
    result = processors_.set_affinity(moved->processors, thread.call.args, thread.process->memory, result);
  } else if (sched_getaffinity(moved->tid, sizeof moved->processors, &moved->processors) != 0) {
    return result;
  }
  if (result == 0) placement_.send(moved->tid, moved->process->unit->place);
  return result;
}

}  // namespace redrive
