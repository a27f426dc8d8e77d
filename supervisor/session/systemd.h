// libsystemd, loaded when it is first needed: a recording that nobody controls, and commands that read traces, never
// load it. Functions are members without their prefix: `systemd.bus_call(...)` is sd_bus_call(3).
#pragma once

#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>

#include <memory>

#include "base/result.h"

namespace redrive {

#define REDRIVE_SYSTEMD_FUNCTIONS(X)                                                                                   \
  X(bus_new)                                                                                                           \
  X(bus_set_fd)                                                                                                        \
  X(bus_set_server)                                                                                                    \
  X(bus_set_description)                                                                                               \
  X(bus_start)                                                                                                         \
  X(bus_flush)                                                                                                         \
  X(bus_close_unref)                                                                                                   \
  X(bus_is_ready) X(bus_is_open) X(bus_open_system) X(bus_set_exit_on_disconnect) X(bus_attach_event)                  \
      X(bus_request_name) X(bus_add_object_vtable) X(bus_add_fallback_vtable) X(bus_add_node_enumerator)               \
          X(bus_match_signal) X(bus_call_async) X(bus_send) X(bus_error_set) X(bus_query_sender_creds)                 \
              X(bus_creds_get_euid) X(bus_creds_unref) X(bus_get_current_message) X(bus_path_encode)                   \
                  X(bus_path_decode) X(bus_slot_unref) X(bus_message_new_method_call) X(bus_message_new_method_return) \
                      X(bus_message_new_method_errorf) X(bus_message_append) X(bus_message_append_basic)               \
                          X(bus_message_open_container) X(bus_message_close_container) X(bus_message_append_strv)      \
                              X(bus_message_append_array) X(bus_message_read_array) X(bus_message_read)                \
                                  X(bus_message_read_basic) X(bus_message_read_strv) X(bus_message_enter_container)    \
                                      X(bus_message_exit_container) X(bus_message_at_end) X(bus_message_skip)          \
                                          X(bus_message_copy) X(bus_message_get_member) X(bus_message_get_path)        \
                                              X(bus_message_get_error) X(bus_message_is_method_error)                  \
                                                  X(bus_message_get_bus) X(bus_message_ref) X(bus_message_unref)       \
                                                      X(event_new) X(event_unref) X(event_add_io)                      \
                                                          X(event_add_time_relative) X(event_add_defer)                \
                                                              X(event_add_signal) X(event_set_watchdog)                \
                                                                  X(event_source_set_enabled) X(event_source_unref)    \
                                                                      X(event_run) X(event_loop) X(event_exit)         \
                                                                          X(notify) X(listen_fds)

struct Systemd {
#define X(name) decltype(&::sd_##name) name;
  REDRIVE_SYSTEMD_FUNCTIONS(X)
#undef X
  const unsigned* bus_object_vtable_format;
};

// An error if the library is not there, or too old.
Result<const Systemd*> load_systemd();
// After load_systemd() has succeeded.
const Systemd& systemd();

struct SystemdUnref {
  void operator()(sd_bus* bus) const { systemd().bus_close_unref(bus); }
  void operator()(sd_bus_message* message) const { systemd().bus_message_unref(message); }
  void operator()(sd_bus_slot* slot) const { systemd().bus_slot_unref(slot); }
  void operator()(sd_event* event) const { systemd().event_unref(event); }
  void operator()(sd_event_source* source) const { systemd().event_source_unref(source); }
};
using Bus = std::unique_ptr<sd_bus, SystemdUnref>;
using BusMessage = std::unique_ptr<sd_bus_message, SystemdUnref>;
using BusSlot = std::unique_ptr<sd_bus_slot, SystemdUnref>;
using EventLoop = std::unique_ptr<sd_event, SystemdUnref>;
using EventSource = std::unique_ptr<sd_event_source, SystemdUnref>;

// The library's functions return a negative errno. An Error says what could not be done.
inline Result<void> check_systemd(int result, const std::string& what) {
  if (result < 0) return errno_error(what, -result);
  return {};
}

}  // namespace redrive

// The macros of <systemd/sd-bus-vtable.h> refer to this variable of the library.
#define sd_bus_object_vtable_format (*::redrive::systemd().bus_object_vtable_format)
