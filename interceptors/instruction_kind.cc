#include "interceptors/instruction_kind.h"

#include "interceptors/disassembler.h"

namespace redrive {
namespace {

bool is_event(unsigned id) {
  switch (id) {
    case X86_INS_SYSCALL:
    case X86_INS_SYSENTER:
    case X86_INS_RDTSC:
    case X86_INS_RDTSCP:
    case X86_INS_CPUID:
    case X86_INS_UD2:  // stands in for rdtsc, rdtscp and cpuid where they do not trap
    case X86_INS_INT:
    case X86_INS_INT3:
    case X86_INS_PUSHF:
    case X86_INS_PUSHFQ:
    // After a step over one of these, the kernel takes the trap flag of later steps for the program's.
    case X86_INS_POPF:
    case X86_INS_POPFQ:
    case X86_INS_IRET:
    case X86_INS_IRETD:
    case X86_INS_IRETQ:
      return true;
    default:
      return false;
  }
}

// Whether the instruction works on strings. Capstone has one name for movsd and cmpsd of strings and of SSE registers.
bool is_string(const cs_insn& instruction) {
  switch (instruction.id) {
    case X86_INS_MOVSB:
    case X86_INS_MOVSW:
    case X86_INS_MOVSQ:
    case X86_INS_CMPSB:
    case X86_INS_CMPSW:
    case X86_INS_CMPSQ:
    case X86_INS_STOSB:
    case X86_INS_STOSW:
    case X86_INS_STOSD:
    case X86_INS_STOSQ:
    case X86_INS_LODSB:
    case X86_INS_LODSW:
    case X86_INS_LODSD:
    case X86_INS_LODSQ:
    case X86_INS_SCASB:
    case X86_INS_SCASW:
    case X86_INS_SCASD:
    case X86_INS_SCASQ:
      return true;
    case X86_INS_MOVSD:
    case X86_INS_CMPSD: {
      const cs_x86& detail = instruction.detail->x86;
      return detail.op_count == 2 && detail.operands[0].type == X86_OP_MEM && detail.operands[1].type == X86_OP_MEM;
    }
    default:
      return false;
  }
}

// Whether one of the prefixes repeats. Capstone's own list lacks repne before movsd.
bool repeats(const cs_insn& instruction) {
  for (const uint8_t byte : std::span(instruction.bytes, instruction.size)) {
    switch (byte) {
      case X86_PREFIX_REP:
      case X86_PREFIX_REPNE:
        return true;
      case X86_PREFIX_LOCK:
      case X86_PREFIX_CS:
      case X86_PREFIX_SS:
      case X86_PREFIX_DS:
      case X86_PREFIX_ES:
      case X86_PREFIX_FS:
      case X86_PREFIX_GS:
      case X86_PREFIX_OPSIZE:
      case X86_PREFIX_ADDRSIZE:
        break;
      default:
        return false;
    }
  }
  return false;
}

}  // namespace

InstructionReader::InstructionReader() : disassembler_(std::make_unique<Disassembler>()) {}
InstructionReader::~InstructionReader() = default;

InstructionAt InstructionReader::read(std::span<const uint8_t> code) const {
  const cs_insn* const found = disassembler_->at(code, 0);
  if (!found) return {};
  const auto size = static_cast<uint8_t>(found->size);
  if (is_event(found->id)) return {InstructionKind::event, size};
  return {is_string(*found) && repeats(*found) ? InstructionKind::repeated : InstructionKind::plain, size};
}

}  // namespace redrive
