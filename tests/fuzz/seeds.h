// Shared by the fuzzers: their arguments, [SEED [ITERATIONS]], and printing the seed of a failure, however the fuzzer
// ends.
#pragma once

#include <errno.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace redrive::fuzz {

inline char how_to_show[64];  // read by a signal handler

inline void show_seed(int signal) {
  (void)!::write(STDERR_FILENO, how_to_show, std::strlen(how_to_show));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

#ifdef __SANITIZE_ADDRESS__
extern "C" inline __attribute__((used)) void __asan_on_error() {
  (void)!::write(STDERR_FILENO, how_to_show, std::strlen(how_to_show));
}
#endif

inline void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
  std::abort();
}

// Runs `one` with each seed; at the end, prints `what` it has read.
template <typename One>
int run(int argc, char** argv, uint64_t iterations, const char* what, One one) {
  const char* const name = program_invocation_short_name;
  const uint64_t first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  if (argc > 2) iterations = std::strtoull(argv[2], nullptr, 10);
  for (const int signal : {SIGABRT, SIGALRM}) std::signal(signal, show_seed);
#ifndef __SANITIZE_ADDRESS__
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE}) std::signal(signal, show_seed);
#endif
  for (uint64_t seed = first; seed < first + iterations; seed++) {
    std::snprintf(how_to_show, sizeof how_to_show, "%s: show again with: %s %llu 1\n", name, name,
                  static_cast<unsigned long long>(seed));
    one(seed);
  }
  std::printf("%s: %llu %s from seed %llu read\n", name, static_cast<unsigned long long>(iterations), what,
              static_cast<unsigned long long>(first));
  return 0;
}

}  // namespace redrive::fuzz
