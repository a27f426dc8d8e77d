// A seccomp program (seccomp(2)) made from rules, by libseccomp: for calls of x86-64, what the answer is to which
// numbers and arguments. What rules cannot say, such as where a call is made, is put in front, or written with
// FilterProgram.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>

#include <memory>
#include <vector>

#include "base/result.h"

namespace redrive {

class FilterRules {
 public:
  // `others`: the answer to calls that no rule is about. `foreign`: the answer to calls of other architectures (x32,
  // i386).
  FilterRules(uint32_t others, uint32_t foreign);
  // The answer to calls with this number whose arguments satisfy all conditions (seccomp_rule_add(3)).
  void add(uint32_t answer, int number, const std::vector<scmp_arg_cmp>& conditions = {});
  // Finds the number by a binary search.
  Result<std::vector<sock_filter>> program() const;

 private:
  std::unique_ptr<void, void (*)(void*)> rules_;
  int failure_ = 0;  // the first one; a negative errno
};

}  // namespace redrive
