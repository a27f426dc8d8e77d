#include "supervisor/record/stops/signal_frames.h"

#include <sys/ucontext.h>

#include <cstddef>

namespace redrive {

Address saved_registers(Address sp) {
  static_assert(offsetof(SavedRegisters, rip) == REG_RIP * sizeof(greg_t));
  return sp + sizeof(uint64_t) + offsetof(ucontext_t, uc_mcontext.gregs);
}

}  // namespace redrive
