// Why intervals of a replay set have failed. An interval that waits in vain for another one fails because of that, so
// what is named is what failed first, however long the chain.
#pragma once

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace redrive {

class FailureCauses {
 public:
  // Sets the number of intervals.
  void resize(size_t intervals) { causes_.resize(intervals); }
  // An interval has failed. If because_of() has made the failure, its cause is the one that was named then.
  void add(size_t interval, Error failure) {
    const auto known = named_.find(failure.message);
    causes_[interval] = known == named_.end() ? std::move(failure) : known->second;
    if (!first_) first_ = causes_[interval];
  }
  // Why the interval has failed, and why the first one has; nothing if none has.
  const std::optional<Error>& of(size_t interval) const { return causes_[interval]; }
  const std::optional<Error>& first() const { return first_; }
  // The failure of an interval to which `what` happened because of a cause, with the status of the cause; no cause: it
  // failed by itself.
  Error because_of(const std::optional<Error>& cause, std::string what) {
    if (!cause) return Error{std::move(what)};
    Error error{fmt::format("{}: {}", what, cause->message), cause->status};
    named_.emplace(error.message, *cause);
    return error;
  }

 private:
  std::vector<std::optional<Error>> causes_;  // by interval
  std::optional<Error> first_;
  std::map<std::string, Error> named_;  // by the message of the failure that because_of() has made
};

}  // namespace redrive
