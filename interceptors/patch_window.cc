#include "interceptors/patch_window.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>

#include "base/assert.h"
#include "interceptors/disassembler.h"

namespace redrive {
namespace {

constexpr uint64_t kNear = 160;           // a short jump reaches 127 bytes
constexpr uint64_t kAround = 1 << 10;     // of a site: what matters for its window
constexpr uint64_t kFunction = 32 << 10;  // few are longer
constexpr uint8_t kNearJump = 0xe9;

// Which instructions may move: those that touch no memory and cannot fault, or all that do not depend on where they
// are.
enum class Operands : uint8_t { registers, any };

// Whether an instruction is of the first kind.
bool only_computes(unsigned id) {
  switch (id) {
    case X86_INS_MOV:
    case X86_INS_MOVABS:
    case X86_INS_LEA:
    case X86_INS_MOVZX:
    case X86_INS_MOVSXD:
    case X86_INS_CMP:
    case X86_INS_TEST:
    case X86_INS_XOR:
    case X86_INS_AND:
    case X86_INS_OR:
    case X86_INS_ADD:
    case X86_INS_SUB:
    case X86_INS_NEG:
    case X86_INS_NOT:
    case X86_INS_SHL:
    case X86_INS_SHR:
    case X86_INS_SAR:
    case X86_INS_SETE:
    case X86_INS_SETNE:
    case X86_INS_XCHG:
      return true;
    default:
      return false;
  }
}

// Instructions that make events, that indirect jumps lead to, or that do not end where they begin.
bool has_to_stay(unsigned id) {
  switch (id) {
    case X86_INS_SYSCALL:
    case X86_INS_SYSENTER:
    case X86_INS_RDTSC:
    case X86_INS_RDTSCP:
    case X86_INS_CPUID:
    case X86_INS_UD2:
    case X86_INS_ENDBR64:
    case X86_INS_XBEGIN:
    case X86_INS_LOOP:  // and its relatives: they name their target
    case X86_INS_LOOPE:
    case X86_INS_LOOPNE:
    case X86_INS_JCXZ:
    case X86_INS_JECXZ:
    case X86_INS_JRCXZ:
    case X86_INS_INVALID:
      return true;
    default:
      return false;
  }
}

// Whether the instruction can be made to mean the same at another address, and does not leave.
bool movable(const Disassembler& disassembler, const cs_insn& instruction, Operands allowed) {
  if (instruction.id == X86_INS_NOP) return true;
  for (const uint8_t group : {CS_GRP_JUMP, CS_GRP_CALL, CS_GRP_RET, CS_GRP_INT, CS_GRP_IRET, CS_GRP_PRIVILEGE}) {
    if (disassembler.in_group(group)) return false;
  }
  // x87 instructions leave their own address in registers.
  if (has_to_stay(instruction.id) || disassembler.in_group(X86_GRP_FPU)) return false;
  if (allowed == Operands::registers && !only_computes(instruction.id)) return false;
  const cs_x86& detail = instruction.detail->x86;
  return std::none_of(detail.operands, detail.operands + detail.op_count, [&](const cs_x86_op& operand) {
    return operand.type == X86_OP_MEM && (allowed == Operands::registers || operand.mem.base == X86_REG_EIP);
  });
}

// Whether the instruction leaves for good, and can do so from anywhere: a return, or a jump to an address in a register
// or in memory.
bool leaves(const cs_insn& instruction) {
  if (instruction.id == X86_INS_RET) return true;
  if (instruction.id != X86_INS_JMP) return false;
  const cs_x86_op& target = instruction.detail->x86.operands[0];
  return target.type != X86_OP_IMM && !(target.type == X86_OP_MEM && target.mem.base == X86_REG_EIP);
}

// Whether the instruction, after one that leaves, is never executed.
bool is_padding(const cs_insn& instruction) { return instruction.id == X86_INS_NOP || instruction.id == X86_INS_INT3; }

// The offset of the distance in a near jump; 0 if there is no such jump.
uint8_t near_jump_distance(std::span<const uint8_t> code) {
  if (code.size() >= 6 && code[0] == 0x0f && code[1] >> 4 == 8) return 2;
  return code.size() >= kJumpSize && code[0] == kNearJump ? 1 : 0;
}

// The size of an instruction that does not jump and is newer than the disassembler, such as rdpkru and wrpkru: those
// that begin with 0f 01 and have no memory operand have one more byte. 0 if it is none of these.
uint8_t unknown_size(std::span<const uint8_t> code) {
  return code.size() >= 3 && code[0] == 0x0f && code[1] == 0x01 && code[2] >= 0xc0 ? 3 : 0;
}

// The offset of the distance from the instruction's end to the memory that it uses; 0 if it uses no such address.
uint8_t displacement_at(const cs_insn& instruction) {
  const cs_x86& detail = instruction.detail->x86;
  const bool relative = std::any_of(detail.operands, detail.operands + detail.op_count, [](const cs_x86_op& operand) {
    return operand.type == X86_OP_MEM && operand.mem.base == X86_REG_RIP;
  });
  return relative ? detail.encoding.disp_offset : 0;
}

constexpr uint64_t kGroup = 16;  // bytes that are looked at together

__m128i bytes_at(const uint8_t* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }
__m128i are(__m128i bytes, int mask, int value) {
  return _mm_cmpeq_epi8(_mm_and_si128(bytes, _mm_set1_epi8(static_cast<char>(mask))),
                        _mm_set1_epi8(static_cast<char>(value)));
}

// Which of the bytes look like the last one of the opcode of a near jump or call: bit k for byte k. The byte before
// them is read, too.
unsigned near_jumps(const uint8_t* code) {
  const __m128i bytes = bytes_at(code);
  const __m128i jump_or_call = are(bytes, 0xfe, 0xe8);  // e8 or e9
  const __m128i conditional = _mm_and_si128(are(bytes_at(code - 1), 0xff, 0x0f), are(bytes, 0xf0, 0x80));
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_or_si128(jump_or_call, conditional)));
}

// The same of the opcodes of jumps to an address in a register or in memory. The byte after them is read, too.
unsigned indirect_jumps(const uint8_t* code) {
  return static_cast<unsigned>(
      _mm_movemask_epi8(_mm_and_si128(are(bytes_at(code), 0xff, 0xff), are(bytes_at(code + 1), 0x38, 0x20))));
}

// A load from a table of addresses, or of distances from it.
struct TableLoad {
  uint64_t modrm = 0;  // where its ModR/M byte is
  uint8_t rex = 0;
  unsigned scale = 0;  // the logarithm of an entry's size
};
constexpr unsigned kDistance = 2, kAddress = 3;

}  // namespace

uint64_t replaceable_size(std::span<const uint8_t> code) {
  const auto begins_with = [&](std::initializer_list<uint8_t> instruction) {
    return code.size() >= instruction.size() && std::equal(instruction.begin(), instruction.end(), code.begin());
  };
  if (begins_with({0x0f, 0x05}) || begins_with({0x0f, 0x31})) return 2;
  return begins_with({0x0f, 0x01, 0xf9}) ? 3 : 0;
}

// Some of a segment's code. Places are offsets in the segment.
class CodeSegment::Code {
 public:
  Code(uint64_t start, Bytes bytes) : start_(start), bytes_(std::move(bytes)) {}
  uint64_t start() const { return start_; }
  uint64_t end() const { return start_ + bytes_.size(); }
  uint8_t operator[](uint64_t place) const { return bytes_[place - start_]; }
  std::span<const uint8_t> from(uint64_t place) const { return std::span(bytes_).subspan(place - start_); }
  // Null if there is none. Valid until the next call.
  const cs_insn* instruction(uint64_t place) const {
    return place < end() ? disassembler_.at(bytes_, place - start_, start_) : nullptr;
  }
  // Whether one of this size begins there. A rdtsc or cpuid with prefixes is larger than what a jump replaces.
  bool has_instruction(uint64_t place, uint64_t size) const {
    const cs_insn* const found = instruction(place);
    return found && found->size == size;
  }
  const Disassembler& disassembler() const { return disassembler_; }  // which has found that instruction
  bool short_jump_into(uint64_t first, uint64_t end) const;
  bool is_jump(uint64_t opcode) const;
  std::optional<TableLoad> load_for(uint64_t jump) const;
  std::optional<int64_t> table_of(const TableLoad& load, uint64_t start) const;

 private:
  bool loads_by(uint64_t modrm, unsigned scale) const;

  const uint64_t start_;
  const Bytes bytes_;
  const Disassembler disassembler_;
};

CodeSegment::CodeSegment(uint64_t size, ReadCode read) : read_(std::move(read)), targets_(size) {
  constexpr uint64_t kAtOnce = 64 << 10;
  Bytes code(1 + kAtOnce + kJumpSize - 1);  // with the byte before, and the rest of a jump that begins in these
  for (uint64_t begin = 0; begin < size; begin += kAtOnce) {
    const auto bytes = std::span(code).subspan(1, std::min(size - begin, kAtOnce + kJumpSize - 1));
    if (read_(begin, bytes) < bytes.size()) {
      targets_.assign(size, true);  // anything may be one
      return;
    }
    for (uint64_t group = 0; group < std::min<uint64_t>(bytes.size(), kAtOnce); group += kGroup) {
      for (unsigned jumps = near_jumps(&bytes[group]); jumps != 0; jumps &= jumps - 1) {
        const uint64_t at = group + static_cast<unsigned>(std::countr_zero(jumps));
        if (at + kJumpSize > bytes.size()) break;
        int32_t distance;
        std::memcpy(&distance, &bytes[at + 1], sizeof distance);
        const int64_t target = static_cast<int64_t>(begin + at + kJumpSize) + distance;
        if (target >= 0 && target < static_cast<int64_t>(size)) targets_[static_cast<size_t>(target)] = true;
      }
    }
    code[0] = code[kAtOnce];
  }
}

CodeSegment::CodeSegment(Bytes code)
    : CodeSegment(code.size(), [code](uint64_t offset, std::span<uint8_t> to) {
        const size_t size = std::min<uint64_t>(to.size(), code.size() - std::min<uint64_t>(offset, code.size()));
        std::copy_n(code.begin() + static_cast<ptrdiff_t>(offset), size, to.begin());
        return size;
      }) {}

// The code that is no further away from the place than this, which lies in the segment.
CodeSegment::Code CodeSegment::around(uint64_t place, uint64_t distance) const {
  const uint64_t start = place - std::min(place, distance);
  Bytes code(std::min<uint64_t>(targets_.size(), place + distance) - start);
  code.resize(read_(start, code));
  return {start, std::move(code)};
}

// Disassembles the surrounding code, from the first offset from which this reaches `first`.
bool CodeSegment::Code::short_jump_into(uint64_t first, uint64_t end) const {
  const uint64_t furthest = std::max(start_, first - std::min(first, 2 * kNear));
  for (uint64_t begin = furthest; begin < furthest + 16 && begin < first; ++begin) {
    bool met = false, found = false;
    for (uint64_t at = begin; at < std::min(this->end(), end + kNear);) {
      met |= at == first;
      if (!met && at > first) break;
      const cs_insn* const found_there = instruction(at);
      if (!found_there) {
        const uint64_t size = unknown_size(from(at));
        if (size == 0) break;
        at += size;
        continue;
      }
      const cs_x86_op& operand = found_there->detail->x86.operands[0];
      if (disassembler_.in_group(CS_GRP_JUMP) && operand.type == X86_OP_IMM) {
        const auto target = static_cast<uint64_t>(operand.imm);
        found |= target > first && target < end;
      }
      at += found_there->size;
    }
    if (met) return found;
  }
  return true;
}

// Whether these bytes, which look like a jump's opcode, are one, and not the end of one instruction with the beginning
// of the next. Code is disassembled from so far before them that it does not matter whether that start is inside an
// instruction.
bool CodeSegment::Code::is_jump(uint64_t opcode) const {
  constexpr uint64_t kEnough = 256, kPrefixes = 2;  // prefixes: notrack and REX
  for (uint64_t at = std::max(start_, opcode - std::min(opcode, kEnough)); at <= opcode;) {
    const cs_insn* const found = instruction(at);
    const uint64_t next = at + (found ? found->size : 1);
    if (next > opcode) return found && disassembler_.in_group(X86_GRP_JUMP) && opcode - at <= kPrefixes;
    at = next;
  }
  return false;
}

// Whether the instruction uses memory by base, index and scale, and possibly a displacement.
bool CodeSegment::Code::loads_by(uint64_t modrm, unsigned scale) const {
  const Code& code = *this;
  return modrm + 1 < end() && (code[modrm] & 7) == 4 && code[modrm] >> 6 != 3 && code[modrm + 1] >> 6 == scale;
}

// Where what looks like an indirect jump has its target from, if that may be a table: jmp *table(,index,8), or a
// jmp *register right after a load from such a table or from a table of distances (movslq (table,index,4), register).
std::optional<TableLoad> CodeSegment::Code::load_for(uint64_t jump) const {
  constexpr uint64_t kNearest = 24;  // bytes from a load to its jump
  const Code& code = *this;
  const bool by_register = code[jump + 1] >> 3 == 0x1c;  // ff e0 to ff e7
  if (!by_register) {
    if (!loads_by(jump + 1, kAddress)) return std::nullopt;
    const uint8_t before = jump > start_ ? code[jump - 1] : 0;
    return TableLoad{jump + 1, before >> 4 == 4 ? before : uint8_t{0}, kAddress};
  }
  for (uint64_t modrm = jump; modrm-- > std::max(start_ + 1, jump - std::min(jump, kNearest - 1));) {
    const uint8_t opcode = code[modrm - 1];
    const unsigned scale = opcode == 0x63 ? kDistance : kAddress;
    if ((opcode != 0x63 && opcode != 0x8b) || !loads_by(modrm, scale)) continue;
    return TableLoad{modrm, modrm < start_ + 2 ? uint8_t{0} : code[modrm - 2], scale};
  }
  return std::nullopt;
}

// The table's place relative to the segment, which is at `start`, if the nearest lea before the load set the base
// register.
std::optional<int64_t> CodeSegment::Code::table_of(const TableLoad& load, uint64_t start) const {
  const Code& code = *this;
  const uint8_t mode = code[load.modrm] >> 6;
  const bool no_base = mode == 0 && (code[load.modrm + 1] & 7) == 5;
  const size_t size = mode == 1 ? sizeof(int8_t) : mode == 2 || no_base ? sizeof(int32_t) : 0;
  int32_t displacement = 0;
  if (load.modrm + 2 + size > end()) return std::nullopt;
  std::memcpy(&displacement, from(load.modrm + 2).data(), size);
  if (no_base) return displacement - static_cast<int64_t>(start);
  if (displacement != 0) return std::nullopt;  // rbp and r13 have one of zero, because the encoding demands it
  const uint8_t base = code[load.modrm + 1] & 7, extension = load.rex & 1;
  for (uint64_t at = load.modrm; at-- > std::max(start_, load.modrm - std::min(load.modrm, kFunction));) {
    const bool lea = at + 7 <= end() && code[at] == (0x48 | extension << 2) && code[at + 1] == 0x8d &&
                     code[at + 2] == (base << 3 | 5);
    if (!lea) continue;
    std::memcpy(&displacement, from(at + 3).data(), sizeof displacement);
    return static_cast<int64_t>(at + 7) + displacement;
  }
  return std::nullopt;
}

// Whether a jump through a nearby table may lead to a byte after the first one. If the table cannot be found, it may
// lead anywhere.
bool CodeSegment::table_leads_into(uint64_t first, uint64_t end, const Mapped& mapped) const {
  const Code code = around(first, kAround + kFunction);
  const auto leads_into = [&](const TableLoad& load) {
    const auto table = code.table_of(load, mapped.start);
    if (!table) return true;
    std::array<uint8_t, 4096> bytes;
    const size_t size = mapped.read(*table, bytes);
    for (size_t at = 0; at + (1u << load.scale) <= size; at += 1u << load.scale) {
      int64_t target = 0;
      int32_t distance = 0;
      std::memcpy(&target, &bytes[at], std::min<size_t>(sizeof target, size - at));
      std::memcpy(&distance, &bytes[at], sizeof distance);
      target = load.scale == kDistance ? *table + distance : target - static_cast<int64_t>(mapped.start);
      if (target < 0 || target >= static_cast<int64_t>(targets_.size())) break;  // the end of the table
      if (target > static_cast<int64_t>(first) && target < static_cast<int64_t>(end)) return true;
    }
    return false;
  };
  if (code.end() - code.start() <= kGroup) return false;
  const uint64_t last_group = code.end() - kGroup - 1;
  const uint64_t last = std::min<uint64_t>(code.end(), first + kFunction);
  for (uint64_t next = std::max(code.start(), first - std::min(first, kFunction)); next < last; next += kGroup) {
    const uint64_t group = std::min(next, last_group);
    for (unsigned jumps = indirect_jumps(code.from(group).data()); jumps != 0; jumps &= jumps - 1) {
      const uint64_t at = group + static_cast<unsigned>(std::countr_zero(jumps));
      // That it is a jump takes longest to find out.
      const auto load = code.load_for(at);
      if (load && leads_into(*load) && code.is_jump(at)) return true;
    }
  }
  return false;
}

bool CodeSegment::jumped_into(const Code& code, uint64_t first, uint64_t end, const Mapped& mapped) const {
  for (uint64_t at = first + 1; at < end; ++at) {
    if (targets_[at]) return true;
  }
  if (code.short_jump_into(first, end)) return true;
  const cs_insn* const instruction = code.instruction(first);
  const bool alone = instruction && first + instruction->size >= end;
  return !alone && table_leads_into(first, end, mapped);
}

std::optional<PatchWindow> CodeSegment::window_behind(const Code& code, uint64_t site, uint64_t size,
                                                      const Mapped& mapped) const {
  const uint64_t behind = site + size;
  uint64_t end = behind;
  uint32_t displacements = 0;
  bool ends_in_jump = false, left = false;
  while (end < site + kJumpSize && end < code.end()) {
    const cs_insn* instruction = code.instruction(end);
    if (!instruction) break;
    const bool short_jump = !left && instruction->size == kShortJumpSize && is_short_jump(code[end]);
    if (short_jump && end + kShortJumpSize >= site + kJumpSize) {
      ends_in_jump = true;
      end += kShortJumpSize;
      break;
    }
    const uint8_t near_jump = left ? 0 : near_jump_distance(code.from(end));
    const bool leaves_now = !left && leaves(*instruction);
    const bool moves = near_jump || leaves_now || movable(code.disassembler(), *instruction, Operands::any);
    if (left ? !is_padding(*instruction) : !moves) break;
    const uint8_t at = near_jump ? near_jump : displacement_at(*instruction);
    if (at && !left) displacements |= uint32_t{1} << (end - behind + at);
    left |= leaves_now || (near_jump && code[end] == kNearJump);
    end += instruction->size;
  }
  if (end < site + kJumpSize || end > code.end() || jumped_into(code, site, end, mapped)) return std::nullopt;
  return PatchWindow{0, static_cast<uint8_t>(end - behind), displacements, ends_in_jump};
}

std::optional<PatchWindow> CodeSegment::window(uint64_t site, const Mapped& mapped) const {
  if (site >= targets_.size()) return std::nullopt;
  const Code code = around(site, kAround);
  const uint64_t size = site < code.end() ? replaceable_size(code.from(site)) : 0;
  if (size == 0) return std::nullopt;
  if (const auto behind = window_behind(code, site, size, mapped)) return behind;
  if (code[site + 1] != 0x05) return std::nullopt;
  // mov $number, %eax or %rax
  const auto preceded_by = [&](std::initializer_list<uint8_t> opcode, uint64_t size) {
    return site - code.start() >= size && std::equal(opcode.begin(), opcode.end(), code.from(site - size).begin());
  };
  const uint8_t before = preceded_by({0xb8}, 5) ? 5 : preceded_by({0x48, 0xc7, 0xc0}, 7) ? 7 : 0;
  if (before && !jumped_into(code, site - before, site, mapped)) return PatchWindow{before, 0};
  return std::nullopt;
}

std::optional<PatchWindow> CodeSegment::window_at(uint64_t place, const Mapped& mapped) const {
  if (place >= targets_.size()) return std::nullopt;
  return window_behind(around(place, kAround), place, 0, mapped);
}

std::optional<PatchWindow> CodeSegment::counter_window(uint64_t site, uint64_t size, const Mapped& mapped) const {
  if (site > targets_.size() || size > targets_.size() - site) return std::nullopt;
  const Code code = around(site, kAround);
  return code.has_instruction(site, size) ? window_behind(code, site, size, mapped) : std::nullopt;
}

std::optional<PatchWindow> CodeSegment::window(uint64_t site, const std::vector<uint8_t>& front,
                                               const Mapped& mapped) const {
  if (site + kSyscallSize > targets_.size()) return std::nullopt;
  const Code code = around(site, kAround);
  if (!code.has_instruction(site, kSyscallSize)) return std::nullopt;
  if (const auto behind = window_behind(code, site, kSyscallSize, mapped)) return behind;
  uint64_t start = site;
  for (const uint8_t length : front) {
    if (length > start - code.start()) break;
    start -= length;
    const cs_insn* instruction = code.instruction(start);
    if (!instruction || instruction->size != length ||
        !movable(code.disassembler(), *instruction, Operands::registers)) {
      break;
    }
    if (site - start < kJumpSize) continue;
    if (jumped_into(code, start, site, mapped)) break;
    return PatchWindow{static_cast<uint8_t>(site - start), 0};
  }
  return std::nullopt;
}

}  // namespace redrive
