// Makes the units of a distributed breakpoint into processes that run on by themselves.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/criu.h"
#include "logstore/trace.h"
#include "supervisor/live/hold.h"
#include "supervisor/live/image_directory.h"
#include "supervisor/live/keeper.h"
#include "supervisor/live/race.h"
#include "supervisor/live/spec_maker.h"
#include "supervisor/live/transplant.h"

namespace redrive {

struct RevivalOptions {
  std::vector<EventRef> events;      // the breakpoint
  std::optional<FirstWanted> first;  // which message its receiver gets first; without it, at least one event
  Files files = Files::real;
  bool stopped = false;  // they stand stopped (SIGSTOP)
  // Only this unit lives, of which there is an event; what it has connected to others is closed. The past of all units
  // is read, because of what it has inherited, but only its own replay set is re-driven.
  std::optional<UnitId> only;
  ImageDirectory* images = nullptr;  // they are to be dumped there
  bool in_process = true;
  int jobs = 1;
};

class Revival {
 public:
  struct Revived {
    UnitId unit = 0;
    EventIndex event = 0;
    int32_t pid = 0;  // as the program knows it
    pid_t host_pid = 0;
  };

  // All is there, and nothing runs yet. An Error: what cannot live again, and nothing is left of it.
  static Result<Revival> make(const Trace& trace, const RevivalOptions& options);

  const std::vector<Revived>& processes() const { return processes_; }
  const std::vector<std::string>& notes() const { return spec_.notes; }
  const std::optional<Delivery>& first() const { return first_; }
  // If one message is to be received first: only its receiver runs, until it has received the message or has ended, and
  // then what was withheld comes. Returns whether it was received.
  Result<bool> deliver_first();
  // All that do not yet run do, or stand stopped.
  Result<void> let_go();
  // Dumps those that were to be dumped, which ends them.
  Result<void> dump(const Criu& criu);
  // Until all have ended; the status of the first.
  int wait() { return keeper_->wait(); }

 private:
  Revival() = default;
  Result<void> let_go(std::optional<UnitId> only);
  Result<void> cut_files();
  Result<void> transplant(const Trace& trace, const std::map<UnitId, UnitState>& states,
                          const std::map<KernelModel::ProcessName, const Memory*>& memories, ImageDirectory* images);

  bool stopped_ = false;
  std::optional<Delivery> first_;
  LiveSpec spec_;
  std::vector<Revived> processes_;
  std::vector<std::pair<size_t, Transplant>> transplants_;  // with the number of the process
  std::unique_ptr<Hold> hold_;
  std::unique_ptr<Keeper> keeper_;
  std::string images_;  // the directory
};

}  // namespace redrive
