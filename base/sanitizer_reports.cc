// How sanitizers report; part of sanitizer builds only (`make asan`, `make tsan`). Their options are not set in the
// environment, because recorded programs inherit it. Where tests set REDRIVE_TRACE_DIR, reports go into files
// DIRECTORY.report.PID beside that directory, because standard error may be the program's, or closed.
#include <dlfcn.h>
#include <sanitizer/common_interface_defs.h>

#include <cstdlib>
#include <string>

#define REPORT_OPTIONS "exitcode=66"
// Otherwise it lowers the limit for core dumps, which recorded programs would see.
#define RUNTIME_OPTIONS REPORT_OPTIONS ":disable_coredump=0"
// Before a thread ends, when it blocks all signals, it would read the clock, whose instruction traps in the recorder.
#define ADDRESS_OPTIONS RUNTIME_OPTIONS ":allocator_release_to_os_interval_ms=-1"
// A child of fork cannot join threads of its parent that had ended but were not joined yet. They would be reported as
// leaks when the child ends by itself, as the children of a killed replay do, although they are not races.
#define THREAD_OPTIONS RUNTIME_OPTIONS ":report_thread_leaks=0"

extern "C" {
// Called before the C library is ready.
const char* __asan_default_options() { return ADDRESS_OPTIONS; }
const char* __tsan_default_options() { return THREAD_OPTIONS; }
const char* __ubsan_default_options() { return REPORT_OPTIONS ":print_stacktrace=1"; }
}

namespace {

[[maybe_unused]] const bool paths_set = [] {
  const char* const traces = std::getenv("REDRIVE_TRACE_DIR");
  if (!traces) return false;
  const std::string path = std::string(traces) + ".report";
  __sanitizer_set_report_path(path.c_str());
  // If another sanitizer is in use as well, GCC's library for undefined behaviour has a report path of its own.
  if (void* const undefined = dlopen("libubsan.so.1", RTLD_NOW | RTLD_NOLOAD)) {
    using SetReportPath = void(const char*);
    reinterpret_cast<SetReportPath*>(dlsym(undefined, "__sanitizer_set_report_path"))(path.c_str());
  }
  return true;
}();

}  // namespace
