// Replaces instructions in the programs' code: system calls and counters that have stopped often enough, those of loops
// in which threads wait, and rdtsc, rdtscp and cpuid where they cannot be trapped. It owns what is known of the files'
// code (patch_plans.h), which outlives a recording.
#pragma once

#include "logstore/trace.h"
#include "supervisor/record/code/mapped_file.h"
#include "supervisor/record/code/patch_plans.h"
#include "supervisor/record/code/patcher.h"
#include "supervisor/record/code/trap_replacement.h"
#include "supervisor/record/kernel/tracee_calls.h"
#include "supervisor/record/settings/recorder_limits.h"
#include "supervisor/record/tracees/tracee.h"
#include "supervisor/tier/gate_arena.h"

namespace redrive {

class Tracees;
class Findings;
class ThreadControl;

class CodePatching {
 public:
  // `cache`: holds what is known of files already, and is told what was learnt of them; null if there is none.
  CodePatching(FileCache* cache, TraceeCalls& calls, TraceWriter& writer, const RecorderLimits& limits,
               GateArena* arena, CpuidAnswers& answers, Tracees& tracees, Findings& findings, ThreadControl& control)
      : calls_(calls),
        writer_(writer),
        limits_(limits),
        arena_(arena),
        answers_(answers),
        tracees_(tracees),
        findings_(findings),
        control_(control),
        plans_(cache),
        replacement_(cache, limits.traps),
        patcher_(plans_, replacement_) {}

  // At a syscall's stop: replaces its instruction if that has proved worth it. True if the thread had to be resumed,
  // and comes to the same call again.
  bool patch(Thread& thread);
  // The same at another instruction that has stopped the thread, or that belongs to a loop in which it waits. The
  // thread's registers have to be set afterwards.
  void patch_instruction(Thread& thread, Address at, SiteKind kind);
  // Code was mapped that nothing has run yet.
  void apply_plan(Process& process, const Mapping& mapping, const MappedFile& file);
  // On machines that cannot trap all of rdtsc, rdtscp and cpuid: replaces them in a file's mapping that was just made,
  // and notes that in the event. `file`: null if it cannot be reached.
  void replace_traps(Process& process, const Mapping& mapping, const MappedFile* file, Event* event);
  // A thread has stopped because the replaced cpuid there asks what nobody has asked yet.
  void note_question(const Thread& thread, Address at, const CpuidQuestion& question);
  // What is known of the code of a program's file.
  Program& program(const FileVersion& file) { return plans_.program(file); }
  // Whether code of this file holds instructions that would have to be replaced.
  bool needs_replacement(const MappedFile& file);
  // At the end: notes the instructions that have stopped most often in the trace, and keeps what was learnt in the
  // cache.
  void keep();
  // Whether the thread's call is made by a library; the dynamic linker is one. A program that maps code by itself is an
  // emulator or a translator: it reads that code, and finds what the file holds.
  bool is_made_by_library(const Thread& thread);
  // What has to be done when code of this file is mapped. The file must be reachable.
  gate::MappedCode mapped_code(const MappedFile& file, const std::string& name);

 private:
  std::optional<Patcher::Replacement> replacement(const Thread& thread, Address at, SiteKind kind);
  bool in_use(const Thread& thread, const AddressRange& code) const;
  Result<void> map_trampolines(Thread& thread, Address near);
  void answer_again(std::span<const CpuidQuestion> questions);

  TraceeCalls& calls_;
  TraceWriter& writer_;
  const RecorderLimits& limits_;
  GateArena* arena_;
  CpuidAnswers& answers_;
  Tracees& tracees_;
  Findings& findings_;
  ThreadControl& control_;
  PatchPlans plans_;
  TrapReplacement replacement_;
  Patcher patcher_;
};

}  // namespace redrive
