// Shows threads the contents of adapted files (adapted_files.h): a thread that has opened one gets a memory object
// (memfd_create(2)) in the file's place.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>

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

  // At a call's exit, where the thread has the registers `stopped`, and should have the others
  // (Gate::make_canonical()): if the call has opened an adapted file, puts a memory object in its place.
  void replace(Thread& thread, const user_regs_struct& stopped, const user_regs_struct& canonical);

 private:
  using Call = std::function<int64_t(long number, std::initializer_list<uint64_t> args)>;
  static bool put(const Thread& thread, uint64_t descriptor, const std::string& text, uint64_t stack, const Call& call);

  TraceeCalls& calls_;
  AdaptedFiles& adapted_files_;
  Tracees& tracees_;
  Findings& findings_;
  ThreadControl& control_;
};

}  // namespace redrive
