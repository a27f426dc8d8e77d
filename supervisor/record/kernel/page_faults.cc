#include "supervisor/record/kernel/page_faults.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/fd.h"
#include "base/page.h"
#include "base/procfs.h"
#include "base/thread_clock.h"

namespace redrive {
namespace {

// What it takes to copy a page when it is written to.
uint64_t measure_fault_ns() {
  constexpr size_t kPages = 64, kSize = kPages * kPageSize;
  constexpr uint64_t kUsual_ns = 1000;
  const Fd file(memfd_create("redrive-pages", MFD_CLOEXEC));
  if (!file || ftruncate(file.get(), kSize) != 0) return kUsual_ns;
  void* const mapped = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.get(), 0);
  if (mapped == MAP_FAILED) return kUsual_ns;
  auto* const pages = static_cast<volatile uint8_t*>(mapped);
  for (size_t at = 0; at < kSize; at += kPageSize) static_cast<void>(pages[at]);  // what is read is shared
  const uint64_t before = thread_cpu_ns();
  for (size_t at = 0; at < kSize; at += kPageSize) pages[at] = 1;
  const uint64_t took = thread_cpu_ns() - before;
  munmap(mapped, kSize);
  return std::max<uint64_t>(took / kPages, 1);
}

}  // namespace

uint64_t page_faults_ns(pid_t pid) {
  static const uint64_t one_ns = measure_fault_ns();
  constexpr int kMinorFaults = 10;  // proc_pid_stat(5)
  return std::strtoull(proc_stat_field(pid, kMinorFaults).c_str(), nullptr, 10) * one_ns;
}

}  // namespace redrive
