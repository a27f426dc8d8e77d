// One function out of several, for std::visit: Overloaded{[](A) {...}, [](B) {...}}.
#pragma once

namespace redrive {

template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

}  // namespace redrive
