// What successful system calls do to what the kernel holds for a process, one function for each.
#pragma once

#include "interceptors/syscall_table.h"
#include "supervisor/live/kernel_model.h"

namespace redrive {

struct FinishedCall {
  KernelModel& model;
  ProcessModel& process;
  ThreadModel& thread;
  const Event& event;  // with arguments, result and writes
  PastCall past;
  EventRef returned;  // the event in which it has returned
};

// Whether the call may change something.
bool has_effects(const Event& call);

// Whether somebody has decided what the calls of this row do to it.
bool is_decided(const SyscallRow& row);

// Nothing happens for calls that change nothing of it.
void apply_effects(const FinishedCall& call);

}  // namespace redrive
