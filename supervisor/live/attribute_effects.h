// What successful system calls do to attributes of those who make them, and which calls leave nothing behind.
//
// With call_effects.cc, this is the decision for each row of the system call table: that live follows what it does,
// that processes that live make the call again, that what it has done is lost, that who has made it cannot live again,
// or that nothing is left of it. A unit test demands one for every row.
#pragma once

#include <compare>
#include <map>

#include "supervisor/live/call_effects.h"

namespace redrive {

using Effect = void (*)(const FinishedCall&);

// A row of the system call table, or all rows of a number that have no effect of their own.
struct RowKey {
  RowKey(int64_t its_number, int64_t its_command = -1) : number(its_number), command(its_command) {}
  int64_t number;
  int64_t command;
  auto operator<=>(const RowKey&) const = default;
};

const std::map<RowKey, Effect>& attribute_effects();

// The effect of calls that ask or wait, that move bytes in ways that others follow, or that change what is no process's
// own, such as files and the machine's settings.
void leaves_nothing(const FinishedCall& call);

}  // namespace redrive
