// Simulates the answer of a seccomp filter, because without a tracer RET_TRACE gives ENOSYS too. `steps`: how many
// instructions it takes.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "tests/unit/unit_test.h"

inline uint32_t run_filter(const std::vector<sock_filter>& filter, uint32_t arch, uint32_t number, uint64_t ip = 0,
                           const std::array<uint64_t, 6>& args = {}, size_t* steps = nullptr) {
  seccomp_data data{static_cast<int>(number), arch, ip, {}};
  std::copy(args.begin(), args.end(), data.args);
  uint32_t loaded = 0, kept = 0;
  for (size_t at = 0; at < filter.size(); ++at) {
    const sock_filter& step = filter[at];
    if (steps) ++*steps;
    switch (step.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        REQUIRE(step.k <= sizeof data - sizeof loaded);
        std::memcpy(&loaded, reinterpret_cast<const char*>(&data) + step.k, sizeof loaded);
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        at += loaded == step.k ? step.jt : step.jf;
        break;
      case BPF_JMP | BPF_JSET | BPF_K:
        at += loaded & step.k ? step.jt : step.jf;
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        at += loaded >= step.k ? step.jt : step.jf;
        break;
      case BPF_JMP | BPF_JGT | BPF_K:
        at += loaded > step.k ? step.jt : step.jf;
        break;
      case BPF_MISC | BPF_TAX:
        kept = loaded;
        break;
      case BPF_MISC | BPF_TXA:
        loaded = kept;
        break;
      case BPF_LD | BPF_IMM:
        loaded = step.k;
        break;
      case BPF_JMP | BPF_JA:
        at += step.k;
        break;
      case BPF_ALU | BPF_ADD | BPF_X:
        loaded += kept;
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        loaded &= step.k;
        break;
      case BPF_ALU | BPF_LSH | BPF_X:
        REQUIRE(kept < 32);
        loaded <<= kept;
        break;
      case BPF_ALU | BPF_RSH | BPF_K:
        loaded >>= step.k;
        break;
      case BPF_RET | BPF_K:
        return step.k;
      default:
        FAIL("unknown instruction");
    }
  }
  FAIL("the filter runs off its end");
  return 0;
}
