// Facts of signal(7).
#pragma once

#include <signal.h>

#include <cstdint>

namespace redrive {

// As rt_sigaction(2) takes it.
struct SignalAction {
  uint64_t handler = 0, flags = 0, restorer = 0, mask = 0;
};
constexpr uint64_t kIgnore = 1;  // SIG_IGN, as a handler

// Whether its default action is to stop the process (signal(7)).
constexpr bool stops_the_group(int signal) {
  return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

}  // namespace redrive
