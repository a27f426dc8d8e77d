#include "supervisor/replay/inspection.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

namespace redrive {

nlohmann::ordered_json registers_json(const user_regs_struct& r) {
  const std::pair<const char*, uint64_t> registers[] = {
      {"rip", r.rip}, {"rax", r.rax}, {"rbx", r.rbx},      {"rcx", r.rcx},    {"rdx", r.rdx},
      {"rsi", r.rsi}, {"rdi", r.rdi}, {"rbp", r.rbp},      {"rsp", r.rsp},    {"r8", r.r8},
      {"r9", r.r9},   {"r10", r.r10}, {"r11", r.r11},      {"r12", r.r12},    {"r13", r.r13},
      {"r14", r.r14}, {"r15", r.r15}, {"flags", r.eflags}, {"fs", r.fs_base}, {"gs", r.gs_base}};
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const auto& [name, value] : registers) out[name] = fmt::format("{:#x}", value);
  return out;
}

Result<StoppedUnit::Thread> thread_of(const StoppedUnit& unit, std::optional<ThreadSerial> serial) {
  if (!serial) serial = unit.thread;
  if (!serial) return Error{fmt::format("unit {} is at its end: it has no thread", unit.unit)};
  const auto found = unit.threads.find(*serial);
  if (found == unit.threads.end()) return Error{fmt::format("unit {} has no thread {} here", unit.unit, *serial)};
  return found->second;
}

Result<Bytes> memory_of(const StoppedUnit& unit, Address address, uint64_t length) {
  ASSIGN_OR_RETURN(const StoppedUnit::Thread thread, thread_of(unit, std::nullopt));
  Bytes bytes(length);
  if (!unit.memories.at(thread.process)->read(address, bytes.data(), bytes.size())) {
    return Error{fmt::format("unit {} has no memory at {:#x} of {} bytes", unit.unit, address, length)};
  }
  return bytes;
}

std::string hex_dump(Address address, std::span<const uint8_t> bytes) {
  constexpr size_t kLine = 16;
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += kLine) {
    std::string hex, text;
    for (size_t i = 0; i < kLine; ++i) {
      if (i % 2 == 0) hex += ' ';
      if (at + i >= bytes.size()) {
        hex += "  ";
        continue;
      }
      const uint8_t byte = bytes[at + i];
      hex += fmt::format("{:02x}", byte);
      text += byte >= 0x20 && byte < 0x7f ? static_cast<char>(byte) : '.';
    }
    out += fmt::format("{:08x}:{}  {}\n", address + at, hex, text);
  }
  return out;
}

}  // namespace redrive
