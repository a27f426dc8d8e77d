// What the words of command lines stand for, as the help of commands explains them.
#pragma once

#include "supervisor/cli/command.h"

namespace redrive {

inline constexpr Word kGivenTraceWord{"TRACE", "a directory, or a name from 'redrive ls'", Names::traces};
inline constexpr Word kTraceWord{"TRACE", "a directory, or a name from 'redrive ls'; by default, the latest",
                                 Names::traces};
inline constexpr Word kUnitWord{"UNIT", "a number or a name from 'redrive ls TRACE'", Names::units};
inline constexpr Word kIntervalsWord{"I, J", "intervals of the unit, counted from 0"};
inline constexpr Word kMomentWord{"T",
                                  "14:03:07.250, '2026-11-25 14:03:07', @UNIXTIME, -5min (before the recording's end), "
                                  "+2s (after its start)"};
inline constexpr Word kSessionWord{"NAME", "from 'redrive ps'; root names a session of another user as USER/NAME",
                                   Names::sessions};
inline constexpr Word kDurationWord{"D", "a duration such as 500ms, 2s or 10m"};

}  // namespace redrive
