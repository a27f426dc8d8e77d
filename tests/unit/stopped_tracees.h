// What both tracers of the tests do alike: registers, signal and mask of a tracee are there while it is stopped.
#pragma once

#include "supervisor/record/kernel/tracer.h"

namespace redrive {

struct TraceeContext {
  user_regs_struct regs{};
  Bytes xstate = Bytes(64);
  siginfo_t siginfo{};
  uint64_t signal_mask = 0;
};

class StoppedTracees : public Tracer {
 public:
  bool get_regs(pid_t tid, user_regs_struct& regs) override { return get(tid, &TraceeContext::regs, regs); }
  bool set_regs(pid_t tid, const user_regs_struct& regs) override { return set(tid, &TraceeContext::regs, regs); }
  Bytes get_xstate(pid_t tid) override {
    Bytes xstate;
    get(tid, &TraceeContext::xstate, xstate);
    return xstate;
  }
  bool get_siginfo(pid_t tid, siginfo_t& info) override { return get(tid, &TraceeContext::siginfo, info); }
  bool set_siginfo(pid_t tid, const siginfo_t& info) override { return set(tid, &TraceeContext::siginfo, info); }
  bool get_signal_mask(pid_t tid, uint64_t& mask) override { return get(tid, &TraceeContext::signal_mask, mask); }
  bool set_signal_mask(pid_t tid, uint64_t mask) override { return set(tid, &TraceeContext::signal_mask, mask); }

  std::optional<RseqArea> rseq(pid_t) override { return {}; }
  Result<Memory> open_memory(pid_t) override { return Error{"it has no memory"}; }
  bool has_memory(pid_t) override { return true; }
  bool sees_tracer(pid_t) override { return false; }

 private:
  // Null if this one is not stopped, or its stop was not waited for.
  virtual TraceeContext* context(pid_t tid) = 0;

  template <typename T>
  bool get(pid_t tid, T TraceeContext::*member, T& value) {
    const TraceeContext* const found = context(tid);
    if (found) value = found->*member;
    return found;
  }
  template <typename T>
  bool set(pid_t tid, T TraceeContext::*member, const T& value) {
    TraceeContext* const found = context(tid);
    if (found) found->*member = value;
    return found;
  }
};

}  // namespace redrive
