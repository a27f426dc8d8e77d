#include "supervisor/session/systemd.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <type_traits>

#include "base/assert.h"

namespace redrive {
namespace {

constexpr const char* kLibrary = "libsystemd.so.0";

// Stays loaded.
Result<Systemd> load() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library) return Error{fmt::format("sessions need {} (on Debian: apt install libsystemd0)", kLibrary)};
  Systemd loaded{};
  const char* missing = nullptr;
  const auto find = [&](auto& symbol, const char* name) {
    symbol = reinterpret_cast<std::remove_reference_t<decltype(symbol)>>(dlsym(library, name));
    if (!symbol) missing = name;
  };
#define X(name) find(loaded.name, "sd_" #name);
  REDRIVE_SYSTEMD_FUNCTIONS(X)
#undef X
  find(loaded.bus_object_vtable_format, "sd_bus_object_vtable_format");
  if (missing) return Error{fmt::format("{} is too old for redrive: it has no {}()", kLibrary, missing)};
  return loaded;
}

const Result<Systemd>& loaded() {
  static const Result<Systemd> kLoaded = load();
  return kLoaded;
}

}  // namespace

Result<const Systemd*> load_systemd() {
  if (!loaded()) return loaded().error();
  return &loaded().value();
}

const Systemd& systemd() { return loaded().value(); }

}  // namespace redrive
