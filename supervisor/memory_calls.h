// Syscalls that change the memory layout: what record notes of them, and how replay makes the same layout in a stub.
// Both directions of each stand side by side in memory_calls.cc.
#pragma once

#include "checkpoint/restore.h"
#include "interceptors/syscall_table.h"
#include "logstore/event.h"

namespace redrive {

// The name of an object that several mappings share, from what the host calls it. Never 0.
uint64_t shared_object(uint64_t device, uint64_t inode);

// The mapping that holds an address; null if there is none.
const Mapping* mapping_at(const std::vector<Mapping>& mappings, Address address);

// Makes the layout change that `event` recorded, in the stub's thread `tid`.
Result<void> replay_memory_call(const Event& event, Special special, RestoredProcess& process, pid_t tid,
                                SharedObjects& shared, const FilePath& file_path);

}  // namespace redrive
