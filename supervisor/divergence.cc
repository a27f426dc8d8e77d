#include "supervisor/divergence.h"

#include <capstone/capstone.h>
#include <fmt/format.h>
#include <libunwind-ptrace.h>

#include <algorithm>

#include "checkpoint/address_space.h"
#include "interceptors/trapped_instructions.h"

namespace redrive {

namespace {

// "libc.so.6+0x2724a", as debuggers take it: counted from where the file's first mapping begins. What is mapped is the
// trace's copy of the file.
std::string place_in_module(const std::vector<Mapping>& mappings, const CopiedFiles& files, Address address) {
  const Mapping* const at = mapping_at(mappings, address);
  if (!at || at->name.empty()) return "";
  const auto base =
      std::find_if(mappings.begin(), mappings.end(), [&](const Mapping& m) { return m.name == at->name; });
  const auto name_of = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
  const auto is_copy = [&](const auto& file) { return file.second.copy == name_of(at->name); };
  const auto copied = std::find_if(files.begin(), files.end(), is_copy);
  return fmt::format("{}+{:#x}", name_of(copied == files.end() ? at->name : copied->second.path),
                     address - base->start);
}

// "function+0x8a" if the symbol's function is the one that the unwind tables have for the address. A stripped file has
// some symbols left, and the nearest one before an address mostly belongs to another function.
std::string place_in_function(unw_cursor_t& cursor, Address address) {
  unw_word_t offset = 0;
  char name[256] = {};
  unw_proc_info_t function{};
  const bool known = unw_get_proc_name(&cursor, name, sizeof name, &offset) == 0 &&
                     unw_get_proc_info(&cursor, &function) == 0 && address - offset >= function.start_ip;
  return known ? fmt::format("{}+{:#x}", name, offset) : "";
}

}  // namespace

std::string stack_of(pid_t tid, const CopiedFiles& files) {
  constexpr int kMaxFrames = 32;
  const Untrapped untrapped;
  const auto found = read_mappings(tid);
  const std::vector<Mapping> mappings = found ? *found : std::vector<Mapping>{};
  std::string out;
  unw_addr_space_t space = unw_create_addr_space(&_UPT_accessors, 0);
  void* context = space ? _UPT_create(tid) : nullptr;
  unw_cursor_t cursor;
  if (context && unw_init_remote(&cursor, space, context) == 0) {
    for (int frame = 0; frame < kMaxFrames; ++frame) {
      unw_word_t ip = 0;
      unw_get_reg(&cursor, UNW_REG_IP, &ip);
      std::string place = place_in_function(cursor, ip);
      if (place.empty()) place = place_in_module(mappings, files, ip);
      out += fmt::format("#{} {:#x} {}\n", frame, ip, place);
      if (unw_step(&cursor) <= 0) break;
    }
  }
  if (context) _UPT_destroy(context);
  if (space) unw_destroy_addr_space(space);
  return out;
}

std::string disassembly_at(const Memory& memory, Address address) {
  uint8_t code[32];
  const size_t size = memory.read_some(address, code, sizeof code);
  csh engine = 0;
  if (size == 0 || cs_open(CS_ARCH_X86, CS_MODE_64, &engine) != CS_ERR_OK) return {};
  cs_insn* instructions = nullptr;
  const size_t count = cs_disasm(engine, code, size, address, 4, &instructions);
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    out += fmt::format("{:#x}: {} {}\n", instructions[i].address, instructions[i].mnemonic, instructions[i].op_str);
  }
  if (count) cs_free(instructions, count);
  cs_close(&engine);
  return out;
}

std::string describe_registers(const user_regs_struct& r) {
  return fmt::format(
      "rip={:#x} rax={:#x} rbx={:#x} rdx={:#x} rsi={:#x} rdi={:#x} rbp={:#x} rsp={:#x} r8={:#x} r9={:#x} r10={:#x} "
      "r12={:#x} r13={:#x} r14={:#x} r15={:#x} flags={:#x} fs={:#x} gs={:#x}",
      r.rip, r.rax, r.rbx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r12, r.r13, r.r14, r.r15, r.eflags,
      r.fs_base, r.gs_base);
}

}  // namespace redrive
