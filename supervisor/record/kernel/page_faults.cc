#include "supervisor/record/kernel/page_faults.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>

#include "base/page.h"
#include "base/procfs.h"

namespace redrive {
namespace {

// What it takes until a page that is written to for the first time is there.
uint64_t measure_fault_ns() {
  constexpr size_t kPages = 64;
  constexpr uint64_t kUsual_ns = 1000;
  const auto used_ns = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  };
  void* const pages = mmap(nullptr, kPages * kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return kUsual_ns;
  madvise(pages, kPages * kPageSize, MADV_NOHUGEPAGE);
  const uint64_t before = used_ns();
  for (size_t i = 0; i < kPages; ++i) static_cast<volatile uint8_t*>(pages)[i * kPageSize] = 1;
  const uint64_t took = used_ns() - before;
  munmap(pages, kPages * kPageSize);
  return std::max<uint64_t>(took / kPages, 1);
}

}  // namespace

uint64_t page_faults_ns(pid_t pid) {
  static const uint64_t one_ns = measure_fault_ns();
  constexpr int kMinorFaults = 10;  // proc_pid_stat(5)
  return std::strtoull(proc_stat_field(pid, kMinorFaults).c_str(), nullptr, 10) * one_ns;
}

}  // namespace redrive
