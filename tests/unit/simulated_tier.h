// The code inside tracees in miniature (interceptors/inprocess/DESIGN.md), for tracees of the simulated kernel. It maps
// the files that the recorder has made for it, and keeps the protocol of slot and ring step by step, so that a thread
// can be stopped between any two steps. Which calls are served, the recorder's own table says.
//
// Where a thread is in that code, its registers say, as for a processor. The recorder moves it by setting them.
#pragma once

#include <sys/user.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>

#include "base/fd.h"
#include "base/remote.h"
#include "interceptors/inprocess/layout.h"

namespace redrive {

// Some pages of a simulated process. Nothing else can be read or written.
class SimulatedMemory : public MemorySource {
 public:
  void map(Address page) { pages_.try_emplace(page, Bytes(kPageSize)); }

  size_t read_some(Address from, void* to, size_t size) const override;
  bool write(Address to, const void* from, size_t size) const override;

 private:
  // Copies up to the end of a page; the number of bytes.
  size_t copy(Address at, size_t size, const std::function<void(uint8_t* page, size_t done, size_t length)>& one) const;

  mutable std::map<Address, Bytes> pages_;
};

// A file of the recorder's, mapped shared into this process.
class MappedFrom {
 public:
  MappedFrom(int file, size_t size, bool writable);
  ~MappedFrom();
  MappedFrom(const MappedFrom&) = delete;
  MappedFrom& operator=(const MappedFrom&) = delete;
  uint8_t* data() const { return data_; }

 private:
  uint8_t* data_;
  size_t size_;
};

class SimulatedTier {
 public:
  static constexpr Address kVdso = 0x7fff8000;

  // A program has just begun: its stack begins at this address, and no tier is mapped.
  explicit SimulatedTier(Address stack);
  // A fork: its own memory, but the same slot until another one is mapped.
  SimulatedTier(const SimulatedTier& parent);

  const std::shared_ptr<SimulatedMemory>& memory() const { return memory_; }
  // Whether the thread executes this code, or that which maps it.
  bool executes_at(Address ip) const;
  // Null: the tier is not mapped.
  gate::Slot* slot() const { return slot_ ? reinterpret_cast<gate::Slot*>(slot_->data()) : nullptr; }

  // The call that a thread makes there.
  struct Frame {
    int number = 0;
    Address site = 0;
    const gate::Call* call = nullptr;  // its row in the recorder's table
    bool tried = false;                // without its timeout
    bool sends = false;                // its record was announced
    bool in_kernel = false;            // it is made, or about to be, and its result is not recorded
    bool entry_logged = false;         // for the kernel, which writes down what must be logged
    bool stops_here = false;           // it was left to a stop: the instruction at its site stops
  };
  // What comes of a step.
  enum class Step {
    on,      // the thread goes on in user code, here or in the program
    call,    // it is at a syscall instruction that does not stop
    report,  // it is at one that stops
    served,  // on; and a call has been recorded, whose result is in slot()->regs.rax
  };
  Step step(user_regs_struct& regs, Frame& frame, std::chrono::steady_clock::time_point now);
  // A thread jumps there from the program, at a call that is replaced.
  void jump_to(user_regs_struct& regs) const;
  // Whether the slot has not been taken from the thread, which is making a call there.
  bool owns_slot(const user_regs_struct& regs, const Frame& frame) const;

 private:
  const gate::Header& header() const { return *reinterpret_cast<const gate::Header*>(code_->data()); }
  template <typename T>
  T& in_code(Address address) const {
    return *reinterpret_cast<T*>(code_->data() + (address - gate::kCode));
  }

  Step load(user_regs_struct& regs);
  Step inject(user_regs_struct& regs);
  int64_t make(const gate::InjectedCall& call, user_regs_struct& regs);
  void enter(user_regs_struct& regs, Frame& frame);
  bool begin(user_regs_struct& regs, Frame& frame, std::chrono::steady_clock::time_point now);
  bool record_result(user_regs_struct& regs, Frame& frame);
  bool continues_series(const gate::Record& record) const;
  void stamp(gate::Record& record, std::chrono::steady_clock::time_point now);
  void leave(user_regs_struct& regs, Frame& frame);
  gate::Record& at_head() const;

  std::shared_ptr<SimulatedMemory> memory_;
  std::shared_ptr<MappedFrom> code_, clock_, slot_;
  std::map<uint64_t, Fd> files_;  // that injected calls have opened, by number
  uint64_t next_file_ = 3;
};

}  // namespace redrive
