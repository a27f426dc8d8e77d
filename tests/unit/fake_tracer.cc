#include "tests/unit/fake_tracer.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/unit/unit_test.h"

namespace redrive {
namespace {

const char* name_of(Resume how) {
  switch (how) {
    case Resume::cont:
      return "cont";
    case Resume::to_syscall_exit:
      return "to syscall exit";
    case Resume::step:
      break;
  }
  return "step";
}

}  // namespace

FakeTracer::Tracee& FakeTracer::add(pid_t tid, std::vector<Stop> script) {
  by_age_.push_back(tid);
  Tracee& tracee = tracees_[tid];
  tracee.script.assign(script.begin(), script.end());
  return tracee;
}

FakeTracer::Tracee* FakeTracer::find(pid_t tid) {
  const auto found = tracees_.find(tid);
  return found == tracees_.end() ? nullptr : &found->second;
}

FakeTracer::Tracee* FakeTracer::stopped(pid_t tid) {
  Tracee* const tracee = find(tid);
  return tracee && tracee->stopped ? tracee : nullptr;
}

Stop FakeTracer::take(pid_t tid) {
  Tracee& tracee = tracees_.at(tid);
  const Stop stop = tracee.script.front();
  tracee.script.pop_front();
  tracee.stopped = true;
  if (const auto* signalled = std::get_if<SignalStop>(&stop)) {
    tracee.siginfo.si_signo = signalled->signal;
    tracee.signals.pending &= ~bit_of(signalled->signal);
  }
  if (is<Gone>(stop)) {
    tracees_.erase(tid);
    std::erase(by_age_, tid);
  }
  return stop;
}

void FakeTracer::kill(Tracee& tracee) {
  tracee.stopped = false;
  tracee.script = {Gone{{0, SIGKILL}}};
}

Waited FakeTracer::take_any() {
  const auto found = std::find_if(by_age_.rbegin(), by_age_.rend(), [&](pid_t tid) { return has_stopped(tid); });
  if (found != by_age_.rend()) {
    const pid_t tid = *found;
    return Stopped{tid, take(tid)};
  }
  if (tracees_.empty()) return NoTracees{};
  return NoneStopped{};
}

Waited FakeTracer::wait_for_any() {
  Waited waited = take_any();
  if (std::holds_alternative<NoneStopped>(waited)) pass(wake_);
  return waited;
}

std::optional<Stop> FakeTracer::wait(pid_t tid) {
  if (!find(tid)) return {};
  REQUIRE_MESSAGE(has_stopped(tid), "waits for ever");
  return take(tid);
}

bool FakeTracer::has_stopped(pid_t tid) {
  const Tracee* const tracee = find(tid);
  return !tracee || (!tracee->stopped && !tracee->script.empty());
}

Result<void> FakeTracer::seize(pid_t tid) {
  asked.push_back(fmt::format("{}: seize", tid));
  if (!find(tid)) return Error{"no such process"};
  return {};
}

void FakeTracer::detach(pid_t tid, int signal) {
  asked.push_back(fmt::format("{}: detach{}", tid, signal ? fmt::format(" with {}", signal) : ""));
  if (stopped(tid)) std::erase(by_age_, tid), tracees_.erase(tid);
}

bool FakeTracer::set_option(pid_t tid, TraceeOption option) {
  if (option == TraceeOption::reports_exit) asked.push_back(fmt::format("{}: report exit", tid));
  return true;
}

void FakeTracer::resume(pid_t tid, Resume how, int signal) {
  asked.push_back(fmt::format("{}: {}{}", tid, name_of(how), signal ? fmt::format(" with {}", signal) : ""));
  if (Tracee* const tracee = stopped(tid)) tracee->stopped = false;
}

void FakeTracer::listen(pid_t tid) {
  asked.push_back(fmt::format("{}: listen", tid));
  if (Tracee* const tracee = stopped(tid)) tracee->stopped = false;
}

bool FakeTracer::interrupt(pid_t tid) {
  asked.push_back(fmt::format("{}: interrupt", tid));
  Tracee* const tracee = find(tid);
  const bool lives = tracee && (tracee->script.empty() || !is<Gone>(tracee->script.front()));
  if (lives) tracee->script.push_front(Interrupted{});
  return lives;
}

SignalMasks FakeTracer::signal_masks(pid_t tid) {
  const Tracee* const tracee = find(tid);
  if (!tracee) return {};
  SignalMasks masks = tracee->signals;
  masks.blocked = tracee->signal_mask;
  return masks;
}

bool FakeTracer::send(pid_t pid, int signal) {
  asked.push_back(fmt::format("{}: send {}", pid, signal));
  Tracee* const tracee = find(pid);
  if (tracee && signal == SIGKILL) kill(*tracee);
  return tracee;
}

bool FakeTracer::send(pid_t pid, pid_t tid, int signal) {
  asked.push_back(fmt::format("{}/{}: send {}", pid, tid, signal));
  Tracee* const tracee = find(tid);
  if (tracee) tracee->signals.pending |= bit_of(signal);
  if (tracee && signal == SIGKILL) kill(*tracee);
  return tracee;
}

std::optional<uint64_t> FakeTracer::cpu_ns(pid_t pid) const {
  const auto found = cpu_ns_of.find(pid);
  return found == cpu_ns_of.end() ? std::nullopt : std::optional(found->second);
}

void FakeTracer::wake_within(std::chrono::microseconds time) {
  asked.push_back(fmt::format("wake within {} us", time.count()));
  wake_ = time;
}

bool FakeTracer::wake_when_used(pid_t pid, std::chrono::nanoseconds cpu) {
  asked.push_back(fmt::format("{}: wake when {} us are used", pid, cpu.count() / 1000));
  return cpu_ns_of.contains(pid);
}

}  // namespace redrive
