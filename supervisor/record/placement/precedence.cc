#include "supervisor/record/placement/precedence.h"

#include <sys/resource.h>
#include <unistd.h>

#include "supervisor/record/placement/placement.h"

namespace redrive {
namespace {

using namespace std::chrono_literals;

constexpr auto kLook = 50ms;   // from one decision to the next
constexpr auto kFirst = 1s;    // after which it is seen whether it is still kept from running
constexpr double kKept = 0.4;  // of the time
constexpr int kLevels = 10;    // of nice(2)

}  // namespace

Precedence::Precedence()
    : Precedence({[] { return waited_ns_of(gettid()); },
                  [nice = getpriority(PRIO_PROCESS, 0)](bool first) {
                    return setpriority(PRIO_PROCESS, 0, first ? nice - kLevels : nice) == 0;
                  }}) {}

Precedence::~Precedence() {
  if (first_) thread_.come(false);
}

void Precedence::look(Clock::time_point now) {
  if (refused_ || now - since_ < (first_ ? Clock::duration(kFirst) : kLook)) return;
  const uint64_t waited_ns = thread_.waited_ns();
  const auto elapsed_ns = static_cast<double>(std::chrono::nanoseconds(now - since_).count());
  const bool known = since_ != Clock::time_point{};
  const bool first = !first_ && known && static_cast<double>(waited_ns - waited_ns_) > kKept * elapsed_ns;
  if (first != first_) {
    refused_ = !thread_.come(first);
    first_ = first && !refused_;
  }
  since_ = now;
  waited_ns_ = waited_ns;
}

}  // namespace redrive
