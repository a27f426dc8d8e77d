// Assembles a seccomp program (seccomp(2)): instructions with forward jumps to places that become known later.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/assert.h"

namespace redrive {

class FilterProgram {
 public:
  class Place {
    friend FilterProgram;
    struct Jump {
      size_t at;
      bool if_failed;
    };
    std::vector<Jump> jumps;  // to be completed
  };

  void load(size_t offset) { add(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
  void load_number() { load(offsetof(seccomp_data, nr)); }
  void load_low(int arg) { load(offset_of_arg(arg)); }
  void load_high(int arg) { load(offset_of_arg(arg) + 4); }
  void answer(uint32_t action) { add(BPF_RET | BPF_K, action); }
  void add_to_next() { add(BPF_MISC | BPF_TAX, 0); }  // add_it() adds this value to the next one loaded
  void add_it() { add(BPF_ALU | BPF_ADD | BPF_X, 0); }

  void if_equal(uint32_t value, Place& place) { jump_if(BPF_JEQ, value, place); }
  void if_at_least(uint32_t value, Place& place) { jump_if(BPF_JGE, value, place); }
  void if_more(uint32_t value, Place& place) { jump_if(BPF_JGT, value, place); }
  void if_any_bit(uint32_t bits, Place& place) { jump_if(BPF_JSET, bits, place); }
  void if_not_equal(uint32_t value, Place& place) { jump_if(BPF_JEQ, value, place, true); }
  void here(const Place& place) {
    for (const auto& [at, if_failed] : place.jumps) {
      const size_t distance = code_.size() - at - 1;
      ASSERT(distance <= UINT8_MAX);
      (if_failed ? code_[at].jf : code_[at].jt) = static_cast<uint8_t>(distance);
    }
  }

  std::vector<sock_filter> take() && { return std::move(code_); }

 private:
  static constexpr size_t offset_of_arg(int arg) {
    return offsetof(seccomp_data, args) + static_cast<size_t>(arg) * sizeof(uint64_t);
  }
  void add(int code, uint32_t k) { code_.push_back({static_cast<uint16_t>(code), 0, 0, k}); }
  void jump_if(int test, uint32_t value, Place& place, bool if_failed = false) {
    place.jumps.push_back({code_.size(), if_failed});
    add(BPF_JMP | test | BPF_K, value);
  }

  std::vector<sock_filter> code_;
};

}  // namespace redrive
