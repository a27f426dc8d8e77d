#include "supervisor/record/code/vdso_patch.h"

#include <asm/unistd_64.h>
#include <elf.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace redrive {
namespace {

constexpr Address kMostPages = 16;
constexpr uint8_t kSyscall[] = {0x0f, 0x05}, kReturn = 0xc3;

// Functions that take the arguments of a system call, and return its result.
constexpr std::array<std::pair<std::string_view, uint32_t>, 6> kFunctions{{
    {"__vdso_clock_gettime", __NR_clock_gettime},
    {"__vdso_clock_getres", __NR_clock_getres},
    {"__vdso_gettimeofday", __NR_gettimeofday},
    {"__vdso_time", __NR_time},
    {"__vdso_getcpu", __NR_getcpu},
    {"__vdso_getrandom", __NR_getrandom},
}};

Bytes code_for(uint32_t number) {
  Bytes code;
  const auto add = [&](std::initializer_list<uint8_t> bytes) { code.insert(code.end(), bytes); };
  const auto load = [&](uint32_t value) {  // mov $value, %eax
    add({0xb8, static_cast<uint8_t>(value), static_cast<uint8_t>(value >> 8), static_cast<uint8_t>(value >> 16),
         static_cast<uint8_t>(value >> 24)});
  };
  if (number == __NR_getrandom) {
    // With a length of ~0 for its state, it is asked how large that has to be: it answers ENOSYS (getrandom(2)).
    add({0x49, 0x83, 0xf8, 0xff});                                             // cmp $-1, %r8
    add({0x75, 0x09});                                                         // jne to the call
    add({0x48, 0xc7, 0xc0, static_cast<uint8_t>(-ENOSYS), 0xff, 0xff, 0xff});  // mov $-ENOSYS, %rax
    add({kReturn, 0x90});                                                      // ret
  }
  load(number);
  add({kSyscall[0], kSyscall[1], kReturn});
  return code;
}

template <typename T>
bool get(const Bytes& bytes, uint64_t at, T& value) {
  if (at > bytes.size() || bytes.size() - at < sizeof value) return false;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return true;
}

std::string_view string_at(const Bytes& bytes, uint64_t at) {
  if (at >= bytes.size()) return {};
  const char* const first = reinterpret_cast<const char*>(bytes.data()) + at;
  return {first, strnlen(first, bytes.size() - at)};
}

// Calls visit(NAME, OFFSET) for each symbol of the image.
template <typename Visit>
void for_each_symbol(const Bytes& image, const Visit& visit) {
  Elf64_Ehdr header{};
  if (!get(image, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return;
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr symbols{}, strings{};
    if (!get(image, header.e_shoff + i * sizeof symbols, symbols) || symbols.sh_type != SHT_DYNSYM) continue;
    if (!get(image, header.e_shoff + symbols.sh_link * sizeof strings, strings)) continue;
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= symbols.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol{};
      if (!get(image, symbols.sh_offset + at, symbol)) return;
      visit(string_at(image, strings.sh_offset + symbol.st_name), symbol.st_value);
    }
  }
}

}  // namespace

Result<VdsoPatch> VdsoPatch::of_process(pid_t pid, const Memory& memory) {
  const Address start = vdso_address(pid);
  const auto range = start ? mapped_from(pid, start) : Error{""};
  if (!range || !*range) return Error{"it has no vDSO"};
  const Address size = (*range)->end - start;
  if (size > kMostPages * kPageSize) return Error{"its vDSO is too large"};
  Bytes found(size);
  if (!memory.read(start, found.data(), found.size())) return Error{"its vDSO cannot be read"};
  // All processes of a kernel have the same.
  if (const Address own = getauxval(AT_SYSINFO_EHDR)) {
    const auto own_range = mapped_from(getpid(), own);
    const auto* const first = reinterpret_cast<const uint8_t*>(own);
    const bool alike = own_range && *own_range && (*own_range)->end - own == size;
    auto patch = alike ? of(start, Bytes(first, first + size)) : Result<VdsoPatch>(Error{""});
    if (patch && patch->patched_ == found) {
      patch->was_patched_ = true;
      return patch;
    }
  }
  return of(start, std::move(found));
}

Result<VdsoPatch> VdsoPatch::of(Address start, Bytes original) {
  const Error unknown{"its vDSO has a form that redrive does not know"};
  VdsoPatch patch;
  patch.start_ = start;
  patch.original_ = std::move(original);
  patch.patched_ = patch.original_;
  bool fits = true, any = false;
  for_each_symbol(patch.original_, [&](std::string_view name, uint64_t offset) {
    const auto known =
        std::find_if(kFunctions.begin(), kFunctions.end(), [&](const auto& each) { return each.first == name; });
    if (known == kFunctions.end()) return;
    const Bytes code = code_for(known->second);
    fits = fits && offset <= patch.patched_.size() && code.size() <= patch.patched_.size() - offset;
    if (fits) std::copy(code.begin(), code.end(), patch.patched_.begin() + static_cast<ptrdiff_t>(offset));
    patch.functions_.push_back({start + offset, start + offset + code.size()});
    any = true;
  });
  if (!fits || !any) return unknown;
  for (size_t at = 0; at + 1 < patch.original_.size() && !patch.instruction_; ++at) {
    const auto is_there = [&](const Bytes& bytes) { return bytes[at] == kSyscall[0] && bytes[at + 1] == kSyscall[1]; };
    if (is_there(patch.original_) && is_there(patch.patched_)) patch.instruction_ = start + at;
  }
  if (!patch.instruction_) return unknown;
  return patch;
}

bool VdsoPatch::move_out(const Memory& memory, Address& ip, Address& sp) const {
  const auto function = std::find_if(functions_.begin(), functions_.end(),
                                     [&](const AddressRange& code) { return code.start < ip && ip < code.end; });
  if (function == functions_.end()) return false;
  if (patched_[ip - start_] != kReturn) {
    ip = function->start;
    return true;
  }
  Address caller = 0;
  if (!memory.get(sp, caller)) return false;
  ip = caller;
  sp += sizeof caller;
  return true;
}

Mapping VdsoPatch::mapping() const {
  Mapping mapping;
  mapping.start = start_;
  mapping.end = start_ + original_.size();
  mapping.protection = PROT_READ | PROT_EXEC;
  mapping.name = "[vdso]";
  return mapping;
}

}  // namespace redrive
