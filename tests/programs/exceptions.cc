// C++ exceptions through many frames, out of threads, and with checkpoints while an exception is in flight.
#include "test.h"

#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct Counted {
  static int alive;
  Counted() { alive++; }
  ~Counted() { alive--; }
};
int Counted::alive = 0;

static int descend(int depth) {
  Counted here;
  if (depth == 0) throw std::runtime_error("bottom");
  return descend(depth - 1) + 1;
}

int main() {
  int caught = 0;
  for (int i = 0; i < 100; i++) {
    try {
      descend(i);
    } catch (const std::runtime_error& error) {
      if (i == 50) pass_checkpoints();
      caught += error.what() == std::string("bottom");
    }
    CHECK(Counted::alive == 0);
  }
  std::vector<std::exception_ptr> errors(4);
  std::vector<std::thread> threads;
  for (auto& error : errors) {
    threads.emplace_back([&error] {
      try {
        CHECK(getppid() >= 0);
        throw std::out_of_range("thread");
      } catch (...) {
        error = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) {
    try {
      std::rethrow_exception(error);
    } catch (const std::out_of_range&) {
      caught++;
    }
  }
  CHECK(caught == 104);
  return ok("%d caught", caught);
}
