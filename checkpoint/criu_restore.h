// Makes stubs by CRIU (criu.h): writes one process as the images that CRIU would have dumped of a stub with its memory
// and threads, and takes over what CRIU makes of them.
//
// The images hold a stub's own pages and its filter, so that the process is confined before it holds control: CRIU
// restores it as nobody, without capabilities and descriptors, with an empty directory for its root. Mapped files are
// the trace's copies. All of its threads would stop at once if they were let run; registers are set later. What CRIU
// need not know is mapped afterwards, as in other stubs: objects that are mapped shared. Stub::adopt() makes what CRIU
// does not restore.
//
// CRIU makes a filter for each thread, which they do not share. Pages lie in their file in ascending order, so it must
// be known which pages there are before they are read; they are in memory twice meanwhile.
//
// Rejected: PID and network namespaces in the images, because the process would be the first of its PID namespace, and
// all that was forked from it would end with it; `--inherit-fd` for the socket, which the process can make itself;
// threads made by the gate, which would share the filter, because making threads is what CRIU can do.
#pragma once

#include <atomic>

#include "checkpoint/criu.h"
#include "checkpoint/restore.h"

namespace redrive {

class CriuEngine final : public RestoreEngine {
 public:
  // An Error, which says what to do, if there is no CRIU that can be used here.
  static Result<std::unique_ptr<CriuEngine>> make();
  Result<std::unique_ptr<ProcessMaker>> begin(const ProcessPlan& plan) override;

 private:
  CriuEngine(Criu criu, uint32_t most_pids) : criu_(std::move(criu)), most_pids_(most_pids) {}
  // The first of so many process numbers that no process of the namespace has.
  uint32_t take_numbers(uint32_t count);

  const Criu criu_;
  const uint32_t most_pids_;
  std::atomic<uint32_t> taken_ = 0;
};

}  // namespace redrive
