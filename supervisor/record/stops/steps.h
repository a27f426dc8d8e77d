// Runs a thread in user code over single instructions, while nothing else of its unit runs.
#pragma once

#include <optional>

#include "interceptors/instruction_kind.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class ThreadControl;
class Ends;
class ForcedSignals;
class StopHandler;

class Steps {
 public:
  Steps(Tracer& tracer, ThreadControl& control, ForcedSignals& forced, Ends& ends, StopHandler& handler)
      : tracer_(tracer), control_(control), forced_(forced), ends_(ends), handler_(handler) {}

  // What the thread is about to execute there; as in supervisor/tier/stepping.h.
  InstructionAt instruction_at(const Thread& thread, Address ip);
  // Has the thread execute that instruction, a repeated one whole, and reads its registers then. False if something
  // else has stopped it. Then it stays as it was, unless `handled` is set: its stop has been handled.
  bool step(Thread& thread, const InstructionAt& instruction, user_regs_struct& regs, bool& handled);
  // Has the thread run until it comes to this instruction; otherwise the same.
  bool run_to(Thread& thread, Address ip, user_regs_struct& regs, bool& handled);

 private:
  // Lets it run until it stops. True if that is a trap of the recorder's. Otherwise `other` is its stop; nothing if it
  // was killed.
  bool run_to_trap(Thread& thread, Resume how, std::optional<Stop>& other);
  void handle(Thread& thread, const std::optional<Stop>& stop);

  Tracer& tracer_;
  ThreadControl& control_;
  ForcedSignals& forced_;
  Ends& ends_;
  StopHandler& handler_;
  std::optional<InstructionReader> reader_;  // once it was needed
};

}  // namespace redrive
