#include "base/filter_rules.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"

namespace redrive {

FilterRules::FilterRules(uint32_t others, uint32_t foreign) : rules_(seccomp_init(others), seccomp_release) {
  constexpr uint32_t kBinarySearch = 2;
  if (!rules_) failure_ = -ENOMEM;
  if (failure_ == 0) failure_ = seccomp_attr_set(rules_.get(), SCMP_FLTATR_ACT_BADARCH, foreign);
  if (failure_ == 0) failure_ = seccomp_attr_set(rules_.get(), SCMP_FLTATR_CTL_OPTIMIZE, kBinarySearch);
}

void FilterRules::add(uint32_t answer, int number, const std::vector<scmp_arg_cmp>& conditions) {
  if (failure_ != 0) return;
  failure_ = seccomp_rule_add_exact_array(rules_.get(), answer, number, static_cast<unsigned>(conditions.size()),
                                          conditions.data());
}

Result<std::vector<sock_filter>> FilterRules::program() const {
  const char* const what = "cannot make a seccomp filter";
  if (failure_ != 0) return errno_error(what, -failure_);
  const Fd file(memfd_create("filter", MFD_CLOEXEC));
  if (!file) return errno_error(what);
  if (const int failed = seccomp_export_bpf(rules_.get(), file.get()); failed != 0) return errno_error(what, -failed);
  const off_t size = lseek(file.get(), 0, SEEK_END);
  if (size < 0) return errno_error(what);
  std::vector<sock_filter> program(static_cast<size_t>(size) / sizeof(sock_filter));
  if (pread(file.get(), program.data(), static_cast<size_t>(size), 0) != size) return errno_error(what);
  return program;
}

}  // namespace redrive
