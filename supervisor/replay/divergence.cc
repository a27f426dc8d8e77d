#include "supervisor/replay/divergence.h"

#include <capstone/capstone.h>
#include <fmt/format.h>

#include <algorithm>

#include "supervisor/replay/call_stack.h"
#include "supervisor/replay/confined.h"

namespace redrive {

namespace {

// "libc.so.6+0x2724a", as debuggers take it: counted from where the file's first mapping begins. What is mapped is the
// trace's copy of the file.
std::string place_in_module(const std::vector<Mapping>& mappings, const CopiedFiles& files, Address address) {
  const Mapping* const at = mapping_at(mappings, address);
  const Mapping* const first = at ? first_of_file(mappings, *at) : nullptr;
  if (!first) return "";
  const auto name_of = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
  const auto is_copy = [&](const auto& file) { return file.second.copy == name_of(at->name); };
  const auto copied = std::find_if(files.begin(), files.end(), is_copy);
  return fmt::format("{}+{:#x}", name_of(copied == files.end() ? at->name : copied->second.path),
                     address - first->start);
}

std::string disassemble(std::span<const uint8_t> code, Address address) {
  constexpr size_t kMostInstructions = 4;
  csh engine = 0;
  if (cs_open(CS_ARCH_X86, CS_MODE_64, &engine) != CS_ERR_OK) return {};
  cs_insn* instructions = nullptr;
  const size_t count = cs_disasm(engine, code.data(), code.size(), address, kMostInstructions, &instructions);
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    out += fmt::format("{:#x}: {} {}\n", instructions[i].address, instructions[i].mnemonic, instructions[i].op_str);
  }
  return out;
}

}  // namespace

std::string stack_of(pid_t tid, const CopiedFiles& files) {
  const CallStack stack(tid);
  const auto show = [&](const CallStack::Frame& frame) {
    const std::string place =
        frame.function.empty() ? place_in_module(stack.mappings(), files, frame.address) : frame.function;
    return fmt::format("{:#x} {}", frame.address, place);
  };
  const auto text = run_confined(stack.descriptors(), [&] { return stack.frames(show); });
  return text ? text.value() : "no stack: " + text.error().message + "\n";
}

std::string disassembly_at(const Memory& memory, Address address) {
  uint8_t code[32];
  const size_t size = memory.read_some(address, code, sizeof code);
  if (size == 0) return {};
  const auto text = run_confined({}, [&] { return disassemble({code, size}, address); });
  return text ? text.value() : "no instructions: " + text.error().message + "\n";
}

std::string hex(uint64_t value) { return value ? fmt::format("{:#x}", value) : "0"; }

std::string describe_registers(const user_regs_struct& r) {
  return fmt::format(
      "rip={:#x} rax={:#x} rbx={:#x} rdx={:#x} rsi={:#x} rdi={:#x} rbp={:#x} rsp={:#x} r8={:#x} r9={:#x} r10={:#x} "
      "r12={:#x} r13={:#x} r14={:#x} r15={:#x} flags={:#x} fs={:#x} gs={:#x}",
      r.rip, r.rax, r.rbx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r12, r.r13, r.r14, r.r15, r.eflags,
      r.fs_base, r.gs_base);
}

}  // namespace redrive
