// The code inside tracees, in replay: answers calls from the ring without entering the kernel.
#pragma once

#include "interceptors/inprocess/layout.h"

namespace redrive::gate {

// A hash of all registers, for recordings too: the hash functions are here.
uint64_t hash_of(const Registers& regs);

// Answers the call whose registers are in the slot, if the ring expects it next, with the same arguments, registers and
// inputs, and puts its result there. False if the call must stop.
bool answer(Slot& slot);

// The values of rax, rbx, rcx and rdx after the rdtsc or rdtscp instruction at the slot's site, if the ring expects it
// next; null if it must stop.
const uint64_t* counter_answer(Slot& slot);
// The same for cpuid.
const uint64_t* cpuid_answer(Slot& slot, uint64_t leaf, uint64_t subleaf);

}  // namespace redrive::gate
