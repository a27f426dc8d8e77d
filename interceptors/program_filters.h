// The seccomp filters that recorded programs install (seccomp(2)), evaluated by the recorder.
//
// The kernel does not get them: it would apply them to the recorder's own calls too. A chain of filters is immutable
// and shared by all threads that have it. A program is checked as the kernel checks it, and has the same meaning as
// there.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "interceptors/inprocess/layout.h"

namespace redrive {

// Whether the kernel would accept the program as a filter (EINVAL otherwise).
bool is_valid_filter(std::span<const sock_filter> program);

class ProgramFilters {
 public:
  // `program` must be valid. `older`: the filters that were installed before, or null.
  ProgramFilters(std::vector<sock_filter> program, std::shared_ptr<const ProgramFilters> older);

  // The answer of the strictest filter, chosen as the kernel does: SECCOMP_RET_ACTION_FULL and SECCOMP_RET_DATA.
  uint32_t answer(const seccomp_data& call) const;
  // The system calls, by number, that not all filters allow for all arguments.
  const std::array<uint64_t, gate::kCallWords>& restricted() const { return restricted_; }
  size_t count() const { return 1 + (older_ ? older_->count() : 0); }
  // The instructions of all filters, counted as the kernel counts them for its limit.
  size_t instructions() const { return instructions_; }
  // Whether `other` (null: no filter) was installed before this one, or is the same.
  bool descends_from(const ProgramFilters* other) const;

 private:
  std::vector<sock_filter> program_;
  std::shared_ptr<const ProgramFilters> older_;
  std::array<uint64_t, gate::kCallWords> restricted_{};
  size_t instructions_ = 0;
};

}  // namespace redrive
