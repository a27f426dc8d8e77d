// The code inside tracees, in replay: answers calls from the ring without entering the kernel.
#pragma once

#include "interceptors/inprocess/layout.h"

namespace redrive::gate {

// A hash of all registers, for recordings too: the hash functions are here.
uint64_t hash_of(const Registers& regs);

// Answers the call whose registers are in the slot, if the ring expects it next, and puts its result there: if number,
// site, arguments, preserved registers and the hash of what the kernel would read are those of the event. Makes the
// calls of an event that changes memory. A receive waits for its sender's word and compares the hash: it spins for some
// us if the sender runs on another processor, lets others run here a few times (sched_yield(2)), and then sleeps
// (futex(2)), which takes some 50 us with being woken where processors are virtual. False if the call must stop.
bool answer(Slot& slot);

// The values of rax, rbx, rcx and rdx after the rdtsc or rdtscp instruction at the slot's site, if the ring expects it
// next; null if it must stop.
const uint64_t* counter_answer(Slot& slot);
// The same for cpuid, whose leaf and subleaf are compared.
const uint64_t* cpuid_answer(Slot& slot, uint64_t leaf, uint64_t subleaf);

}  // namespace redrive::gate
