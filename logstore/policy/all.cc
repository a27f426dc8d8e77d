// Keeps every payload: every interval replays alone (DR-MCAPI's data replay).
#include "logstore/policy/policy.h"

namespace redrive {
namespace {

class All : public Policy {
 public:
  void on_checkpoint(uint32_t, uint64_t) override {}
  Tag on_send(uint32_t, uint64_t, uint64_t) override { return {}; }
  Decision on_receive(uint32_t, uint64_t, const Tag&, uint64_t) override { return {Keep::keep}; }
};

}  // namespace

std::unique_ptr<Policy> make_all(const PolicyParameters&) { return std::make_unique<All>(); }

}  // namespace redrive
