#include "supervisor/record/placement/seen_processors.h"

#include <algorithm>
#include <cerrno>

namespace redrive {

SeenProcessors::SeenProcessors(const cpu_set_t& there, unsigned count) : all_(there), count_(count) {
  if (!count) return;
  CPU_ZERO(&all_);
  for (size_t i = 0; i < count; ++i) CPU_SET(i, &all_);
}

int64_t SeenProcessors::get_affinity(const cpu_set_t& its, const Arguments& args, const Memory& memory,
                                     int64_t result) const {
  auto size = std::min(static_cast<size_t>(result), sizeof its);
  if (count_) {  // whole words, as in the kernel's answer
    size = (count_ + 63) / 64 * sizeof(uint64_t);
    if (args[1] < size) return -EINVAL;
  }
  memory.write(args[2], &its, size);
  return static_cast<int64_t>(size);
}

void SeenProcessors::get_processor(const cpu_set_t& its, const Arguments& args, const Memory& memory) {
  uint32_t processor = 0;
  if (!args[0] || !memory.get(args[0], processor) || CPU_ISSET(processor, &its)) return;
  processor = 0;
  while (processor < CPU_SETSIZE - 1 && !CPU_ISSET(processor, &its)) ++processor;
  memory.put(args[0], processor);
}

int64_t SeenProcessors::set_affinity(cpu_set_t& its, const Arguments& args, const Memory& memory,
                                     int64_t result) const {
  if (result != 0 && result != -EINVAL) return result;
  cpu_set_t wanted, chosen;
  CPU_ZERO(&wanted);
  const size_t size = std::min<size_t>(args[1], sizeof wanted);
  if (!memory.read(args[2], &wanted, size)) return result;
  CPU_AND(&chosen, &wanted, &all_);
  if (CPU_COUNT(&chosen) == 0) return -EINVAL;
  its = chosen;
  return 0;
}

}  // namespace redrive
