// Shows threads the contents of adapted files (adapted_files.h): a thread that opens one gets a memory object
// (memfd_create(2)) in the file's place.
#pragma once

#include "supervisor/record/disguise/adapted_files.h"
#include "supervisor/record/kernel/tracee_calls.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class Tracees;
class Findings;
class ThreadControl;

class AdaptedOpens {
 public:
  AdaptedOpens(TraceeCalls& calls, AdaptedFiles& adapted_files, Tracees& tracees, Findings& findings,
               ThreadControl& control)
      : calls_(calls), adapted_files_(adapted_files), tracees_(tracees), findings_(findings), control_(control) {}

  // At the entry of an open: if the file is an adapted one, has the kernel create a memory object instead.
  void open(Thread& thread);
  // At its exit, with the registers `stopped`: fills the object, and restores the registers in `regs`.
  void fill(Thread& thread, const user_regs_struct& stopped, user_regs_struct& regs);

 private:
  void open_for_reading(Thread& thread, const user_regs_struct& stopped);

  TraceeCalls& calls_;
  AdaptedFiles& adapted_files_;
  Tracees& tracees_;
  Findings& findings_;
  ThreadControl& control_;
};

}  // namespace redrive
