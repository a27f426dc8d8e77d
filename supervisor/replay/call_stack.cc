#include "supervisor/replay/call_stack.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <libunwind.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "base/elf_file.h"
#include "base/page.h"
#include "base/procfs.h"
#include "interceptors/trapped_instructions.h"

// Exported for programs that find unwind tables themselves, as perf(1) does, but declared in no header.
extern "C" int UNW_OBJ(dwarf_search_unwind_table)(unw_addr_space_t, unw_word_t, unw_dyn_info_t*, unw_proc_info_t*, int,
                                                  void*);

namespace redrive {
namespace {

constexpr int kMostFrames = 32;
constexpr size_t kMostFiles = 256;
constexpr size_t kLongestName = 255;

// By their numbers in libunwind (UNW_X86_64_RAX ...).
constexpr unsigned long long user_regs_struct::*kUnwound[] = {
    &user_regs_struct::rax, &user_regs_struct::rdx, &user_regs_struct::rcx, &user_regs_struct::rbx,
    &user_regs_struct::rsi, &user_regs_struct::rdi, &user_regs_struct::rbp, &user_regs_struct::rsp,
    &user_regs_struct::r8,  &user_regs_struct::r9,  &user_regs_struct::r10, &user_regs_struct::r11,
    &user_regs_struct::r12, &user_regs_struct::r13, &user_regs_struct::r14, &user_regs_struct::r15,
    &user_regs_struct::rip};

struct Symbol {
  std::string name;
  uint64_t start = 0;  // as the file counts addresses
};

// Finds the function in a symbol table that begins last before the address.
void find_symbol(const ReadFile& read, const ElfFile& elf, const Elf64_Shdr& table, uint64_t address,
                 std::optional<Symbol>& found) {
  constexpr uint64_t kAtOnce = 4096;
  if (table.sh_link >= elf.sections.size()) return;
  const Elf64_Shdr& names = elf.sections[table.sh_link];
  std::optional<Elf64_Sym> best;
  std::vector<Elf64_Sym> symbols;
  for (uint64_t at = 0, left = table.sh_size / sizeof(Elf64_Sym); left > 0;) {
    symbols.resize(std::min(left, kAtOnce));
    const size_t got = read(table.sh_offset + at * sizeof(Elf64_Sym),
                            {reinterpret_cast<uint8_t*>(symbols.data()), symbols.size() * sizeof(Elf64_Sym)});
    symbols.resize(got / sizeof(Elf64_Sym));
    if (symbols.empty()) break;
    for (const Elf64_Sym& symbol : symbols) {
      const bool function = ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx != SHN_UNDEF;
      if (function && symbol.st_value <= address && (!best || symbol.st_value > best->st_value)) best = symbol;
    }
    at += symbols.size();
    left -= symbols.size();
  }
  if (!best || (found && found->start >= best->st_value) || best->st_name >= names.sh_size) return;
  std::array<uint8_t, kLongestName> name{};
  const size_t size = read(names.sh_offset + best->st_name, name);
  const auto end = std::find(name.begin(), name.begin() + static_cast<ptrdiff_t>(size), 0);
  found = Symbol{{name.begin(), end}, best->st_value};
}

// Where the table of an .eh_frame_hdr that libunwind searches lies. It is sorted, and consists of pairs of 32-bit
// distances.
struct FrameTable {
  uint64_t entries = 0;
  uint64_t offset = 0;  // from its header
};

std::optional<FrameTable> frame_table(const ReadFile& read, uint64_t header) {
  // Parts of encodings (DW_EH_PE_*, Linux Standard Base, "DWARF Extensions").
  constexpr uint8_t kFormat = 0x0f, kAddress = 0, kUnsigned4 = 3, kUnsigned8 = 4, kSigned4 = 0xb, kSigned8 = 0xc;
  constexpr uint8_t kVersion = 1, kFromHeader = 0x30;
  const auto size_of = [](uint8_t encoding) -> uint64_t {
    switch (encoding & kFormat) {
      case kUnsigned4:
      case kSigned4:
        return 4;
      case kAddress:
      case kUnsigned8:
      case kSigned8:
        return 8;
      default:
        return 0;
    }
  };
  const auto head = read_value<std::array<uint8_t, 4>>(read, header);  // version, encodings: frames, count, table
  if (!head || (*head)[0] != kVersion || (*head)[3] != (kFromHeader | kSigned4)) return std::nullopt;
  const uint64_t frames = size_of((*head)[1]), counted = size_of((*head)[2]);
  const uint64_t count_at = header + head->size() + frames;
  if (frames == 0 || counted == 0) return std::nullopt;
  const auto low = read_value<uint32_t>(read, count_at);
  if (!low) return std::nullopt;
  return FrameTable{*low, head->size() + frames + counted};
}

using AddressSpace = std::unique_ptr<std::remove_pointer_t<unw_addr_space_t>, void (*)(unw_addr_space_t)>;
AddressSpace address_space(unw_accessors_t& access) {
  return {unw_create_addr_space(&access, 0), unw_destroy_addr_space};
}

unw_accessors_t no_access() {
  unw_accessors_t access{};
  access.find_proc_info = [](unw_addr_space_t, unw_word_t, unw_proc_info_t*, int, void*) { return -UNW_ENOINFO; };
  access.put_unwind_info = [](unw_addr_space_t, unw_proc_info_t*, void*) {};
  access.get_dyn_info_list_addr = [](unw_addr_space_t, unw_word_t*, void*) { return -UNW_ENOINFO; };
  access.access_mem = [](unw_addr_space_t, unw_word_t, unw_word_t*, int, void*) { return -UNW_EINVAL; };
  access.access_reg = [](unw_addr_space_t, unw_regnum_t, unw_word_t*, int, void*) { return -UNW_EBADREG; };
  access.access_fpreg = [](unw_addr_space_t, unw_regnum_t, unw_fpreg_t*, int, void*) { return -UNW_EBADREG; };
  access.resume = [](unw_addr_space_t, unw_cursor_t*, void*) { return -UNW_EINVAL; };
  access.get_proc_name = [](unw_addr_space_t, unw_word_t, char*, size_t, unw_word_t*, void*) { return -UNW_ENOINFO; };
  return access;
}

// The library makes a pipe for itself when it is first used, which it cannot do where it is confined.
bool prepare() {
  const Untrapped untrapped;
  unw_accessors_t access = no_access();
  const AddressSpace space = address_space(access);
  unw_cursor_t cursor;
  return space && unw_init_remote(&cursor, space.get(), nullptr) == 0;
}

}  // namespace

class CallStack::Unwinding {
 public:
  explicit Unwinding(const CallStack& stack)
      : stack_(stack), read_memory_([this](uint64_t from, std::span<uint8_t> to) { return read(from, to); }) {}

  std::string frames(const std::function<std::string(const Frame&)>& show);

 private:
  // A file with code, as it lies in memory.
  struct Module {
    ElfFile elf;
    uint64_t distance = 0;  // from the addresses that the file counts to those in memory
    ReadFile file;          // for symbols; none: it cannot be opened
  };

  size_t read(Address from, std::span<uint8_t> to);
  const Module* module_at(Address address);
  std::string function_at(unw_cursor_t& cursor, Address address);

  static Unwinding& of(void* self) { return *static_cast<Unwinding*>(self); }
  static int find_tables(unw_addr_space_t, unw_word_t, unw_proc_info_t*, int, void*);
  static int read_word(unw_addr_space_t, unw_word_t, unw_word_t*, int, void*);
  static int read_register(unw_addr_space_t, unw_regnum_t, unw_word_t*, int, void*);

  const CallStack& stack_;
  const ReadFile read_memory_;
  std::map<Address, std::vector<uint8_t>> pages_;
  std::map<Address, Module> modules_;  // by where they begin
};

size_t CallStack::Unwinding::read(Address from, std::span<uint8_t> to) {
  size_t done = 0;
  while (done < to.size()) {
    const Address at = from + done, page = at / kPageSize * kPageSize;
    const auto [known, unknown] = pages_.try_emplace(page);
    if (unknown) {
      known->second.resize(kPageSize);
      known->second.resize(read_from(stack_.memory_.get())(page, known->second));
    }
    if (at - page >= known->second.size()) break;
    const size_t length = std::min<uint64_t>(to.size() - done, known->second.size() - (at - page));
    std::copy_n(known->second.begin() + static_cast<ptrdiff_t>(at - page), length,
                to.begin() + static_cast<ptrdiff_t>(done));
    done += length;
  }
  return done;
}

const CallStack::Unwinding::Module* CallStack::Unwinding::module_at(Address address) {
  const Mapping* const at = mapping_at(stack_.mappings_, address);
  const Mapping* const first = at ? first_of_file(stack_.mappings_, *at) : nullptr;
  if (!first || first->offset != 0) return nullptr;
  const auto [known, unknown] =
      modules_.try_emplace(first->start, Module{ElfFile([&](uint64_t offset, std::span<uint8_t> to) {
                                                  // Sections are seldom mapped, and needed only from the file.
                                                  return offset < first->length() ? read(first->start + offset, to) : 0;
                                                }),
                                                0, nullptr});
  Module& module = known->second;
  if (!unknown) return &module;
  const auto loaded = std::ranges::find_if(module.elf.segments, [](const Elf64_Phdr& segment) {
    return segment.p_type == PT_LOAD && segment.p_offset < kPageSize;
  });
  if (loaded != module.elf.segments.end()) module.distance = first->start - loaded->p_vaddr / kPageSize * kPageSize;
  if (const auto file = stack_.files_.find(at->name); file != stack_.files_.end()) {
    module.file = read_from(file->second.get());
    module.elf.sections = ElfFile(module.file).sections;
  }
  return &module;
}

int CallStack::Unwinding::find_tables(unw_addr_space_t space, unw_word_t ip, unw_proc_info_t* info, int need,
                                      void* self) {
  const Module* const module = of(self).module_at(ip);
  if (!module) return -UNW_ENOINFO;
  for (const auto& segment : module->elf.segments) {
    if (segment.p_type != PT_GNU_EH_FRAME) continue;
    const Address header = module->distance + segment.p_vaddr;
    const auto table = frame_table(of(self).read_memory_, header);
    if (!table) return -UNW_ENOINFO;
    unw_dyn_info_t tables{};
    tables.format = UNW_INFO_FORMAT_REMOTE_TABLE;
    tables.start_ip = 0;
    tables.end_ip = ~unw_word_t{};
    tables.u.rti.segbase = header;
    tables.u.rti.table_data = header + table->offset;
    tables.u.rti.table_len = table->entries;  // pairs of 32 bits, in words
    return UNW_OBJ(dwarf_search_unwind_table)(space, ip, &tables, info, need, self);
  }
  return -UNW_ENOINFO;
}

int CallStack::Unwinding::read_word(unw_addr_space_t, unw_word_t from, unw_word_t* to, int write, void* self) {
  const std::span bytes(reinterpret_cast<uint8_t*>(to), sizeof *to);
  return !write && of(self).read(from, bytes) == bytes.size() ? UNW_ESUCCESS : -UNW_EINVAL;
}

int CallStack::Unwinding::read_register(unw_addr_space_t, unw_regnum_t number, unw_word_t* to, int write, void* self) {
  if (write || number < 0 || static_cast<size_t>(number) >= std::size(kUnwound)) return -UNW_EBADREG;
  *to = of(self).stack_.regs_.*kUnwound[number];
  return UNW_ESUCCESS;
}

// The symbol's function, if it is the one that the unwind tables have for the address. A stripped file has some symbols
// left, and the nearest one before an address mostly belongs to another function.
std::string CallStack::Unwinding::function_at(unw_cursor_t& cursor, Address address) {
  const Module* const module = module_at(address);
  unw_proc_info_t function{};
  if (!module || !module->file || unw_get_proc_info(&cursor, &function) != 0) return {};
  const uint64_t counted = address - module->distance;
  std::optional<Symbol> symbol;
  for (const auto& section : module->elf.sections) {
    if (section.sh_type == SHT_SYMTAB || section.sh_type == SHT_DYNSYM)
      find_symbol(module->file, module->elf, section, counted, symbol);
  }
  if (!symbol || symbol->start + module->distance < function.start_ip) return {};
  return fmt::format("{}+{:#x}", symbol->name, counted - symbol->start);
}

std::string CallStack::Unwinding::frames(const std::function<std::string(const Frame&)>& show) {
  unw_accessors_t access = no_access();
  access.find_proc_info = find_tables;
  access.access_mem = read_word;
  access.access_reg = read_register;
  const AddressSpace space = address_space(access);
  std::string out;
  unw_cursor_t cursor;
  if (!space || unw_init_remote(&cursor, space.get(), this) != 0) return out;
  for (int number = 0; number < kMostFrames; ++number) {
    unw_word_t ip = 0;
    unw_get_reg(&cursor, UNW_REG_IP, &ip);
    out += fmt::format("#{} {}\n", number, show({ip, function_at(cursor, ip)}));
    if (unw_step(&cursor) <= 0) break;
  }
  return out;
}

CallStack::CallStack(pid_t tid) {
  static const bool prepared = prepare();
  static_cast<void>(prepared);
  const std::string path = proc_path(tid, "mem");
  memory_ = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  get_regs(tid, regs_);
  if (auto found = read_mappings(tid)) mappings_ = std::move(*found);
  for (const auto& mapping : mappings_) {
    const bool code = mapping.inode != 0 && mapping.protection & PROT_EXEC;
    if (!code || files_.contains(mapping.name) || files_.size() == kMostFiles) continue;
    Fd file(::open(mapping.name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
    struct stat info {};
    if (!file || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_ino != mapping.inode) continue;
    files_.emplace(mapping.name, std::move(file));
  }
}

std::vector<int> CallStack::descriptors() const {
  std::vector<int> all;
  if (memory_) all.push_back(memory_.get());
  for (const auto& [name, file] : files_) all.push_back(file.get());
  return all;
}

std::string CallStack::frames(const std::function<std::string(const Frame&)>& show) const {
  return Unwinding(*this).frames(show);
}

const Mapping* first_of_file(const std::vector<Mapping>& mappings, const Mapping& mapping) {
  const Mapping* first = nullptr;
  for (const auto& other : mappings) {
    if (other.start > mapping.start) break;
    if (other.name == mapping.name && !(first && other.offset != 0)) first = &other;
  }
  return mapping.name.empty() ? nullptr : first;
}

}  // namespace redrive
