// Result<T>: the value of an operation, or the reason why the environment refused it.
//
// It is not for bugs in redrive (ASSERT, base/assert.h), and not for divergences (values of their own). Errors travel
// up to main or the daemon's session boundary, which print them once.
#pragma once

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/assert.h"

namespace redrive {

// Exit statuses of every redrive command (man page, "EXIT STATUS").
enum class Status : int { ok = 0, failed = 1, usage = 2, divergence = 3, damaged = 4 };

// One line that says what is wrong and, where that helps, what to do.
struct Error {
  std::string message;
  Status status = Status::failed;
};

inline Error errno_error(const std::string& what, int err = errno) {
  const char* const hint = err == EMFILE ? " (see ulimit -n)" : "";
  return Error{what + ": " + std::strerror(err) + hint, Status::failed};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return state_.index() == 0; }
  T& value() & {
    ASSERT(state_.index() == 0);
    return std::get<0>(state_);
  }
  const T& value() const& {
    ASSERT(state_.index() == 0);
    return std::get<0>(state_);
  }
  T&& value() && {
    ASSERT(state_.index() == 0);
    return std::get<0>(std::move(state_));
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  const Error& error() const {
    ASSERT(state_.index() == 1);
    return std::get<1>(state_);
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  explicit operator bool() const { return !error_; }
  const Error& error() const {
    ASSERT(error_.has_value());
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

// TRY(expr): returns the error of a Result<void> expression from the enclosing function.
#define TRY(expr)                                                         \
  do {                                                                    \
    if (auto try_result = (expr); !try_result) return try_result.error(); \
  } while (0)

// ASSIGN_OR_RETURN(decl, expr): `decl` becomes the value, or the error is returned.
#define REDRIVE_CONCAT2(a, b) a##b
#define REDRIVE_CONCAT(a, b) REDRIVE_CONCAT2(a, b)
#define ASSIGN_OR_RETURN(decl, expr) ASSIGN_OR_RETURN_IMPL(REDRIVE_CONCAT(result_, __LINE__), decl, expr)
#define ASSIGN_OR_RETURN_IMPL(name, decl, expr) \
  auto name = (expr);                           \
  if (!name) return name.error();               \
  decl = std::move(name).value()

}  // namespace redrive
