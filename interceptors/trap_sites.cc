#include "interceptors/trap_sites.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/elf_file.h"
#include "interceptors/disassembler.h"
#include "interceptors/instruction_kind.h"
#include "interceptors/trapped_instructions.h"

namespace redrive {
namespace {

constexpr uint64_t kMaxFunction = 1 << 20;
constexpr uint64_t kUnknownSize = 4096;  // of the last function, if it does not say how long it is
constexpr uint8_t kEscape = 0x0f;        // the first byte of all of them
constexpr size_t kShortest = 2;
constexpr uint64_t kInstructions = 3;

template <typename T>
bool get(const Bytes& file, uint64_t offset, T& value) {
  if (offset > file.size() || file.size() - offset < sizeof value) return false;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return true;
}

struct Function {
  uint64_t start;  // addresses in the file's own terms
  uint64_t end;
};

class Functions {
 public:
  explicit Functions(const Bytes& file) : file_(file), elf_(read_from(file)) {}

  const ElfFile& elf() const { return elf_; }

  // The functions that the file itself describes, sorted.
  std::vector<Function> sorted() const {
    std::vector<Function> functions;
    add_from_frames(functions);
    add_from_go_table(functions);
    add_from_symbols(functions);
    std::sort(functions.begin(), functions.end(),
              [](const auto& a, const auto& b) { return std::pair(a.start, a.end) < std::pair(b.start, b.end); });
    return functions;
  }

 private:
  // Adds those of .eh_frame, in the encoding that compilers use.
  void add_from_frames(std::vector<Function>& functions) const {
    const Elf64_Shdr* frames = find(".eh_frame");
    if (!frames) return;
    for (uint64_t at = 0; at < frames->sh_size;) {
      // An entry: its length, CIE (0: this is one), start of the function relative to this field, length of the
      // function.
      const uint64_t entry = frames->sh_offset + at;
      uint32_t length = 0, cie = 0, size = 0;
      int32_t distance = 0;
      if (!get(file_, entry, length) || length == 0 || length >= 0xfffffff0 || !get(file_, entry + 4, cie)) break;
      if (cie != 0 && get(file_, entry + 8, distance) && get(file_, entry + 12, size) && size <= kMaxFunction) {
        const uint64_t start = frames->sh_addr + at + 8 + static_cast<uint64_t>(static_cast<int64_t>(distance));
        functions.push_back({start, start + size});
      }
      at += sizeof length + length;
    }
  }

  // Adds those of .gopclntab in Go's format since 1.18: starts are distances from the first function, and each function
  // ends where the next one begins. https://go.dev/s/go12symtab and the Go source, src/debug/gosym/pclntab.go, describe
  // it. The table of a position-independent binary says where the first function is only once it is loaded; such a
  // table is left out.
  void add_from_go_table(std::vector<Function>& functions) const {
    struct Header {
      uint32_t magic;
      uint8_t zero[2];
      uint8_t code_unit;
      uint8_t pointer_size;
      uint64_t functions, files;
      uint64_t text;
      uint64_t names, units, paths, values;  // offsets of parts of it
      uint64_t table;                        // ... and of this one: a pair of 32-bit numbers for each function
    } header;
    const Elf64_Shdr *lines = find(".gopclntab"), *code = find(".text");
    if (!lines || !code || !get(file_, lines->sh_offset, header)) return;
    const bool known = (header.magic == 0xfffffff0 || header.magic == 0xfffffff1) && header.pointer_size == 8;
    if (!known || header.text - code->sh_addr >= code->sh_size) return;
    const uint64_t table = lines->sh_offset + header.table;
    uint32_t start = 0, next = 0;
    for (uint64_t i = 0; i < header.functions; ++i, start = next) {
      if ((i == 0 && !get(file_, table, start)) || !get(file_, table + (i + 1) * 8, next) || next < start) return;
      if (next - start <= kMaxFunction) functions.push_back({header.text + start, header.text + next});
    }
  }

  // Adds those that have a symbol. Assembly often does not say how long its functions are, and has no .eh_frame: such a
  // function ends where the next one begins.
  void add_from_symbols(std::vector<Function>& functions) const {
    std::vector<Function> named;
    for (const auto& section : elf_.sections) {
      if (section.sh_type != SHT_SYMTAB && section.sh_type != SHT_DYNSYM) continue;
      Elf64_Sym symbol{};
      for (uint64_t at = 0; at < section.sh_size && get(file_, section.sh_offset + at, symbol); at += sizeof symbol) {
        const auto type = ELF64_ST_TYPE(symbol.st_info);
        const bool function = type == STT_FUNC || type == STT_GNU_IFUNC;
        if (!function || symbol.st_shndx == SHN_UNDEF || symbol.st_size > kMaxFunction) continue;
        named.push_back({symbol.st_value, symbol.st_value + symbol.st_size});
      }
    }
    std::vector<uint64_t> starts;
    for (const auto* known : {&functions, &named}) {
      for (const Function& function : *known) starts.push_back(function.start);
    }
    std::sort(starts.begin(), starts.end());
    for (Function& function : named) {
      if (function.end != function.start) continue;
      const auto next = std::upper_bound(starts.begin(), starts.end(), function.start);
      function.end =
          function.start + (next == starts.end() ? kUnknownSize : std::min(kMaxFunction, *next - function.start));
    }
    functions.insert(functions.end(), named.begin(), named.end());
  }

  const Elf64_Shdr* find(std::string_view name) const {
    if (elf_.header.e_shstrndx >= elf_.sections.size()) return nullptr;
    const uint64_t names = elf_.sections[elf_.header.e_shstrndx].sh_offset;
    for (const auto& section : elf_.sections) {
      const uint64_t at = names + section.sh_name;
      if (at < file_.size() && file_.size() - at > name.size() && file_[at + name.size()] == 0 &&
          std::equal(name.begin(), name.end(), file_.begin() + static_cast<int64_t>(at))) {
        return &section;
      }
    }
    return nullptr;
  }

  const Bytes& file_;
  const ElfFile elf_;
};

// The lengths of the instructions before the one at `address`, the nearest first, if disassembling from the function's
// start finds that it is `wanted`.
std::optional<std::vector<uint8_t>> front_of(const Disassembler& disassembler, const ElfFile& elf, const Bytes& file,
                                             const Function& function, uint64_t address,
                                             const TrappedInstruction& wanted) {
  const auto from = elf.offset_of(function.start);
  const uint64_t size = function.end - function.start;
  if (!from || *from > file.size() || file.size() - *from < size) return std::nullopt;
  const auto code = std::span(file).subspan(*from, size);
  std::vector<uint8_t> front;
  for (uint64_t at = 0;;) {
    const cs_insn* const instruction = disassembler.at(code, at);
    if (!instruction) return std::nullopt;
    if (at == address - function.start) {
      return instruction->size == wanted.length ? std::optional(std::move(front)) : std::nullopt;
    }
    at += instruction->size;
    if (at > address - function.start) return std::nullopt;
    front.insert(front.begin(), static_cast<uint8_t>(instruction->size));
    if (front.size() > kMaxFront) front.pop_back();
  }
}

}  // namespace

std::vector<TrapSite> trap_sites(const Bytes& file, ProcessorTraps traps) {
  std::vector<TrapSite> sites;
  const Functions described(file);
  const ElfFile& elf = described.elf();
  const Disassembler disassembler(Disassembler::Detail::none);
  const std::vector<Function> functions = described.sorted();
  const auto function_around = [&](uint64_t address) {
    const auto after = std::upper_bound(functions.begin(), functions.end(), address,
                                        [](uint64_t a, const Function& f) { return a < f.start; });
    const bool inside = after != functions.begin() && address < std::prev(after)->end;
    return inside ? &*std::prev(after) : nullptr;
  };
  for (const auto& section : elf.sections) {
    if (section.sh_type != SHT_PROGBITS || !(section.sh_flags & SHF_EXECINSTR)) continue;
    if (section.sh_offset > file.size() || section.sh_size > file.size() - section.sh_offset) continue;
    const uint8_t* const end = file.data() + section.sh_offset + section.sh_size;
    for (const uint8_t* at = file.data() + section.sh_offset; at + kShortest <= end; ++at) {
      at = static_cast<const uint8_t*>(std::memchr(at, kEscape, static_cast<size_t>(end - at)));
      if (!at) break;
      uint8_t code[3] = {};
      std::copy_n(at, std::min<size_t>(sizeof code, static_cast<size_t>(end - at)), code);
      const auto found = decode_trapped(code);
      if (!found || traps.of(*found)) continue;
      const auto offset = static_cast<uint64_t>(at - file.data());
      const uint64_t address = section.sh_addr + (offset - section.sh_offset);
      const Function* function = function_around(address);
      auto front = function ? front_of(disassembler, elf, file, *function, address, *found) : std::nullopt;
      if (front) sites.push_back({offset, found->instruction, std::move(*front)});
    }
  }
  std::sort(sites.begin(), sites.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  return sites;
}

Bytes encode(const FoundTrapSites& found) {
  Encoder out;
  out.u(found.traps.counter);
  out.u(found.traps.cpuid);
  out.u(found.sites.size());
  for (const auto& site : found.sites) {
    out.u(site.offset);
    out.u(static_cast<uint64_t>(site.instruction));
    out.bytes(site.front);
  }
  out.u(found.questions.size());
  for (const auto& question : found.questions) {
    out.u(question.leaf);
    out.u(question.subleaf);
  }
  return out.take();
}

std::optional<FoundTrapSites> decode_trap_sites(std::span<const uint8_t> bytes) {
  Decoder in(bytes);
  const uint64_t counter = in.u(), cpuid = in.u();
  FoundTrapSites found{.traps = {.counter = counter == 1, .cpuid = cpuid == 1}, .sites = {}, .questions = {}};
  bool good = counter <= 1 && cpuid <= 1;
  auto& sites = found.sites;
  sites.resize(in.count(3));
  for (size_t i = 0; i < sites.size(); ++i) {
    sites[i].offset = in.u();
    const uint64_t instruction = in.u();
    sites[i].instruction = static_cast<int32_t>(std::min<uint64_t>(instruction, kInstructions));
    const auto front = in.bytes();
    sites[i].front.assign(front.begin(), front.end());
    const auto is_length = [](uint8_t length) { return length > 0 && length <= kLongestInstruction; };
    good &= instruction < kInstructions && front.size() <= kMaxFront &&
            std::all_of(front.begin(), front.end(), is_length) && (i == 0 || sites[i].offset > sites[i - 1].offset);
  }
  found.questions.resize(in.count(2));
  good &= found.questions.size() <= gate::kMaxAnswers;
  for (auto& question : found.questions) {
    const uint64_t leaf = in.u(), subleaf = in.u();
    good &= leaf <= UINT32_MAX && subleaf <= UINT32_MAX;
    question = {static_cast<uint32_t>(leaf), static_cast<uint32_t>(subleaf)};
  }
  if (!good || !in.ok() || !in.at_end()) return std::nullopt;
  return found;
}

}  // namespace redrive
