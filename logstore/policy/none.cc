// Keeps no payload: a replay recomputes every message from the senders' checkpoints (control-driven replay).
#include "logstore/policy/policy.h"

namespace redrive {
namespace {

class None : public Policy {
 public:
  void on_checkpoint(uint32_t, uint64_t) override {}
  Tag on_send(uint32_t, uint64_t, uint64_t) override { return {}; }
  Decision on_receive(uint32_t, uint64_t, const Tag&, uint64_t) override { return {Keep::drop}; }
};

}  // namespace

std::unique_ptr<Policy> make_none(const PolicyParameters&) { return std::make_unique<None>(); }

}  // namespace redrive
