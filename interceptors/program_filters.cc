#include "interceptors/program_filters.h"

#include <linux/audit.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>

namespace redrive {
namespace {

// Each filter counts as so many instructions in addition to its own (kernel/seccomp.c, seccomp_attach_filter).
constexpr size_t kPenalty = 4;

bool is_known_code(uint16_t code) {
  switch (code) {
    case BPF_LD | BPF_W | BPF_ABS:
    case BPF_LD | BPF_W | BPF_LEN:
    case BPF_LDX | BPF_W | BPF_LEN:
    case BPF_LD | BPF_IMM:
    case BPF_LDX | BPF_IMM:
    case BPF_LD | BPF_MEM:
    case BPF_LDX | BPF_MEM:
    case BPF_ST:
    case BPF_STX:
    case BPF_RET | BPF_K:
    case BPF_RET | BPF_A:
    case BPF_MISC | BPF_TAX:
    case BPF_MISC | BPF_TXA:
    case BPF_ALU | BPF_NEG:
    case BPF_JMP | BPF_JA:
      return true;
    default:
      break;
  }
  const int operation = BPF_OP(code);
  if (code == (BPF_CLASS(code) | operation | BPF_SRC(code))) {
    if (BPF_CLASS(code) == BPF_ALU) {
      return operation == BPF_ADD || operation == BPF_SUB || operation == BPF_MUL || operation == BPF_DIV ||
             operation == BPF_AND || operation == BPF_OR || operation == BPF_XOR || operation == BPF_LSH ||
             operation == BPF_RSH;
    }
    if (BPF_CLASS(code) == BPF_JMP) {
      return operation == BPF_JEQ || operation == BPF_JGE || operation == BPF_JGT || operation == BPF_JSET;
    }
  }
  return false;
}

bool is_valid_instruction(const sock_filter& instruction, size_t left) {
  if (!is_known_code(instruction.code)) return false;
  switch (instruction.code) {
    case BPF_LD | BPF_W | BPF_ABS:
      return instruction.k < sizeof(seccomp_data) && instruction.k % sizeof(uint32_t) == 0;
    case BPF_ALU | BPF_DIV | BPF_K:
      return instruction.k != 0;
    case BPF_ALU | BPF_LSH | BPF_K:
    case BPF_ALU | BPF_RSH | BPF_K:
      return instruction.k < 32;
    case BPF_LD | BPF_MEM:
    case BPF_LDX | BPF_MEM:
    case BPF_ST:
    case BPF_STX:
      return instruction.k < BPF_MEMWORDS;
    case BPF_JMP | BPF_JA:
      return instruction.k < left;
    default:
      return BPF_CLASS(instruction.code) != BPF_JMP || (instruction.jt < left && instruction.jf < left);
  }
}

// Whether each word of the scratch memory is written on all paths to where it is read (net/core/filter.c,
// check_load_and_stores). Jumps only go forward.
bool reads_what_it_wrote(std::span<const sock_filter> program) {
  std::vector<uint16_t> written(program.size(), 0xffff);  // at least these, before each instruction
  uint16_t now = 0;
  for (size_t at = 0; at < program.size(); ++at) {
    now &= written[at];
    const sock_filter& instruction = program[at];
    const auto reaches = [&](size_t distance) { written[at + 1 + distance] &= now; };
    switch (BPF_CLASS(instruction.code)) {
      case BPF_ST:
      case BPF_STX:
        now = static_cast<uint16_t>(now | 1u << instruction.k);
        break;
      case BPF_LD:
      case BPF_LDX:
        if (BPF_MODE(instruction.code) == BPF_MEM && !(now >> instruction.k & 1)) return false;
        break;
      case BPF_JMP:
        if (instruction.code == (BPF_JMP | BPF_JA)) {
          reaches(instruction.k);
        } else {
          reaches(instruction.jt);
          reaches(instruction.jf);
        }
        now = 0xffff;
        break;
      default:
        break;
    }
  }
  return true;
}

// A filter's answer to a call. `word` returns the 32 bits at an offset into seccomp_data. Nullopt if the filter reads
// something that is not known.
std::optional<uint32_t> run(std::span<const sock_filter> program,
                            const std::function<std::optional<uint32_t>(uint32_t)>& word) {
  uint32_t a = 0, x = 0;
  uint32_t memory[BPF_MEMWORDS] = {};
  for (size_t at = 0;; ++at) {
    const sock_filter& instruction = program[at];
    const uint32_t k = instruction.k;
    const uint32_t operand = BPF_SRC(instruction.code) == BPF_X ? x : k;
    switch (BPF_CLASS(instruction.code)) {
      case BPF_LD:
      case BPF_LDX: {
        uint32_t value = k;
        if (BPF_MODE(instruction.code) == BPF_LEN) value = sizeof(seccomp_data);
        if (BPF_MODE(instruction.code) == BPF_MEM) value = memory[k];
        if (BPF_MODE(instruction.code) == BPF_ABS) {
          const auto known = word(k);
          if (!known) return std::nullopt;
          value = *known;
        }
        (BPF_CLASS(instruction.code) == BPF_LD ? a : x) = value;
        break;
      }
      case BPF_ST:
        memory[k] = a;
        break;
      case BPF_STX:
        memory[k] = x;
        break;
      case BPF_ALU:
        switch (BPF_OP(instruction.code)) {
          case BPF_ADD:
            a += operand;
            break;
          case BPF_SUB:
            a -= operand;
            break;
          case BPF_MUL:
            a *= operand;
            break;
          case BPF_DIV:
            if (operand == 0) return 0;  // this ends the filter
            a /= operand;
            break;
          case BPF_AND:
            a &= operand;
            break;
          case BPF_OR:
            a |= operand;
            break;
          case BPF_XOR:
            a ^= operand;
            break;
          case BPF_LSH:
            a <<= operand % 32;
            break;
          case BPF_RSH:
            a >>= operand % 32;
            break;
          default:
            a = -a;
            break;
        }
        break;
      case BPF_JMP: {
        bool taken = false;
        switch (BPF_OP(instruction.code)) {
          case BPF_JA:
            at += k;
            continue;
          case BPF_JEQ:
            taken = a == operand;
            break;
          case BPF_JGT:
            taken = a > operand;
            break;
          case BPF_JGE:
            taken = a >= operand;
            break;
          default:
            taken = (a & operand) != 0;
            break;
        }
        at += taken ? instruction.jt : instruction.jf;
        break;
      }
      case BPF_RET:
        return BPF_RVAL(instruction.code) == BPF_A ? a : k;
      default:
        if (BPF_MISCOP(instruction.code) == BPF_TAX) {
          x = a;
        } else {
          a = x;
        }
        break;
    }
  }
}

bool lets_pass(uint32_t answer) {
  const uint32_t action = answer & SECCOMP_RET_ACTION_FULL;
  return action == SECCOMP_RET_ALLOW || action == SECCOMP_RET_LOG;
}

}  // namespace

bool is_valid_filter(std::span<const sock_filter> program) {
  if (program.empty() || program.size() > BPF_MAXINSNS) return false;
  for (size_t at = 0; at < program.size(); ++at) {
    if (!is_valid_instruction(program[at], program.size() - at - 1)) return false;
  }
  return BPF_CLASS(program.back().code) == BPF_RET && reads_what_it_wrote(program);
}

ProgramFilters::ProgramFilters(std::vector<sock_filter> program, std::shared_ptr<const ProgramFilters> older)
    : program_(std::move(program)), older_(std::move(older)), instructions_(program_.size()) {
  if (older_) {
    restricted_ = older_->restricted_;
    instructions_ += older_->instructions_ + kPenalty;
  }
  for (uint32_t number = 0; number < gate::kCalls; ++number) {
    const auto answer = run(program_, [&](uint32_t offset) -> std::optional<uint32_t> {
      if (offset == offsetof(seccomp_data, nr)) return number;
      if (offset == offsetof(seccomp_data, arch)) return AUDIT_ARCH_X86_64;
      return std::nullopt;
    });
    if (!answer || !lets_pass(*answer)) restricted_[number / 64] |= uint64_t{1} << number % 64;
  }
}

uint32_t ProgramFilters::answer(const seccomp_data& call) const {
  const auto word = [&](uint32_t offset) -> std::optional<uint32_t> {
    uint32_t value = 0;
    std::memcpy(&value, reinterpret_cast<const uint8_t*>(&call) + offset, sizeof value);
    return value;
  };
  const auto strictness = [](uint32_t answer) { return static_cast<int32_t>(answer & SECCOMP_RET_ACTION_FULL); };
  uint32_t strictest = SECCOMP_RET_ALLOW;
  for (const ProgramFilters* filter = this; filter; filter = filter->older_.get()) {
    const uint32_t answer = run(filter->program_, word).value_or(SECCOMP_RET_KILL_PROCESS);
    if (strictness(answer) < strictness(strictest)) strictest = answer;
  }
  return strictest;
}

bool ProgramFilters::descends_from(const ProgramFilters* other) const {
  if (!other) return true;
  for (const ProgramFilters* filter = this; filter; filter = filter->older_.get()) {
    if (filter == other) return true;
  }
  return false;
}

}  // namespace redrive
