// Facts of signal(7).
#pragma once

#include <signal.h>

namespace redrive {

// Whether its default action is to stop the process (signal(7)).
constexpr bool stops_the_group(int signal) {
  return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

}  // namespace redrive
