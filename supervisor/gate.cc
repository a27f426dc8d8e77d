#include "supervisor/gate.h"

#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "interceptors/gate_calls.h"

extern "C" const uint8_t redrive_gate_code[];
extern "C" const uint8_t redrive_gate_code_end[];

namespace redrive {
namespace {

constexpr uint64_t kCommonSize = gate::kSlot - gate::kCode;
constexpr unsigned long kFsGsBase = 1 << 1;  // HWCAP2_FSGSBASE
constexpr uint64_t kReach = 1ull << 31;      // of a jump
constexpr uint64_t kReachMargin = 1 << 24;

}  // namespace

Result<std::unique_ptr<GateArena>> GateArena::make() {
  if (!(getauxval(AT_HWCAP2) & kFsGsBase)) {
    return Error{"this processor or kernel lets no program read its segment bases"};
  }
  std::unique_ptr<GateArena> arena(new GateArena);
  arena->file_ = Fd(memfd_create("redrive", MFD_CLOEXEC));
  if (!arena->file_) return errno_error("cannot make shared memory");
  arena->size_ = kCommonSize;
  if (ftruncate(arena->file_.get(), static_cast<off_t>(kCommonSize)) != 0)
    return errno_error("cannot make shared memory");
  void* common = mmap(nullptr, kCommonSize, PROT_READ | PROT_WRITE, MAP_SHARED, arena->file_.get(), 0);
  if (common == MAP_FAILED) return errno_error("cannot map shared memory");
  arena->common_ = static_cast<uint8_t*>(common);
  arena->path_ = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(arena->file_.get());
  const auto size = static_cast<size_t>(redrive_gate_code_end - redrive_gate_code);
  CHECK(size <= gate::kCodeSize);
  std::memcpy(arena->common_, redrive_gate_code, size);
  std::memcpy(arena->common_ + (gate::kTable - gate::kCode), gate_table().get(), sizeof(gate::Table));
  std::memcpy(arena->common_ + (kPath - gate::kCode), arena->path_.c_str(), arena->path_.size() + 1);
  return arena;
}

GateArena::~GateArena() {
  if (common_) munmap(common_, kCommonSize);
}

gate::Slot* GateArena::take_slot(uint64_t& file_offset) {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    if (ftruncate(file_.get(), static_cast<off_t>(size_ + gate::kSlotSize)) != 0) return nullptr;
    free_.push_back(size_);
    size_ += gate::kSlotSize;
  }
  file_offset = free_.back();
  void* slot =
      mmap(nullptr, gate::kSlotSize, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), static_cast<off_t>(file_offset));
  if (slot == MAP_FAILED) return nullptr;
  free_.pop_back();
  auto* made = static_cast<gate::Slot*>(slot);
  made->processor = static_cast<uint32_t>(sched_getcpu());
  return made;
}

void GateArena::give_back(gate::Slot* slot, uint64_t file_offset) {
  std::memset(static_cast<void*>(slot), 0, sizeof *slot);
  munmap(slot, gate::kSlotSize);
  const std::lock_guard lock(mutex_);
  free_.push_back(file_offset);
}

std::optional<PatchWindow> CodeSegments::window(const Memory& memory, const Mapping& mapping, Address site) {
  if (mapping.inode == 0 || mapping.shared || (mapping.protection & PROT_WRITE)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto key = std::make_tuple(mapping.device, mapping.inode, mapping.offset, mapping.length());
  auto known = segments_.find(key);
  if (known == segments_.end()) {
    Bytes code(mapping.length());
    code.resize(memory.read_some(mapping.start, code.data(), code.size()));
    known = segments_.emplace(key, CodeSegment(std::move(code))).first;
  }
  return known->second.window(site - mapping.start);
}

Gate::Gate(GateArena& arena, Unit* unit) : unit(unit), arena_(arena) {}

Gate::Gate(const Gate& parent, Unit* unit)
    : unit(unit),
      messages(parent.messages),
      sites(parent.sites),
      trampolines(parent.trampolines),
      stops(parent.stops),
      arena_(parent.arena_) {}

Gate::~Gate() {
  if (slot_) arena_.give_back(slot_, slot_offset_);
}

void Gate::use_table(const std::shared_ptr<FdCache>& table) {
  if (!slot_ || table_ == table) return;
  table_ = table;
  std::fill(std::begin(slot_->known), std::end(slot_->known), 0);
  if (!table) return;
  for (const auto& [descriptor, endpoint] : table->known) set_known(*table, descriptor, true);
}

void Gate::set_known(const FdCache& table, int descriptor, bool known) {
  const auto fd = static_cast<uint32_t>(descriptor);
  if (table_.get() != &table || table.in_several_memories || fd >= gate::kDescriptors) return;
  const uint64_t bit = uint64_t{1} << fd % 64;
  slot_->known[fd / 64] = known ? slot_->known[fd / 64] | bit : slot_->known[fd / 64] & ~bit;
}

bool Gate::take_slot() {
  slot_ = arena_.take_slot(slot_offset_);
  return slot_ != nullptr;
}

Address Gate::canonical(Address ip) const {
  for (const auto& site : sites) {
    if (ip == site.stop) return site.site;
    if (ip == site.stop + site.size) return site.site + site.size;
  }
  return ip;
}

Address Gate::physical(Address ip) const {
  for (const auto& site : sites) {
    if (ip == site.site) return site.stop;
    if (ip == site.site + site.size) return site.stop + site.size;
  }
  return ip;
}

const PatchedSite* Gate::patched(Address site) const {
  const auto found = std::find_if(sites.begin(), sites.end(), [&](const auto& each) { return each.site == site; });
  return found == sites.end() ? nullptr : &*found;
}

Gate::Trampolines* Gate::trampolines_near(Address site) {
  for (auto& known : trampolines) {
    const uint64_t distance = known.start > site ? known.start - site : site - known.start;
    if (distance < kReach - kReachMargin && known.used < kTrampolinesSize / kTrampolineSize) return &known;
  }
  return nullptr;
}

std::optional<Address> Gate::gap_near(const std::vector<Mapping>& mappings, Address near) {
  constexpr uint64_t kGuard = 16 * kPageSize;
  constexpr Address kLowest = 1 << 20;
  for (auto above = mappings.rbegin(); above != mappings.rend(); ++above) {
    if (above->start > near) continue;
    const Address below = above + 1 == mappings.rend() ? kLowest : (above + 1)->end;
    if (near - above->start > kReach - 2 * kReachMargin) break;
    if (above->start < below + 2 * kGuard + kTrampolinesSize) continue;
    return above->start - kGuard - kTrampolinesSize;
  }
  return std::nullopt;
}

Gate::Trampolines& Gate::add_trampolines(const Memory& memory, Address start) {
  memory.put(start, arena_.header().entry);
  return trampolines.emplace_back(Trampolines{start});
}

bool Gate::patch(const Memory& memory, Address site, PatchWindow window, Trampolines& area) {
  PatchedSite patched;
  patched.site = site;
  patched.start = site - window.before;
  Bytes before(window.before), instruction(3), after(window.after);
  instruction.resize(memory.read_some(site, instruction.data(), instruction.size()));
  patched.size = replaceable_size(instruction);
  if (patched.size == 0) return false;
  instruction.resize(patched.size);
  patched.original.resize(window.before ? window.before : patched.size + window.after);
  const Address at = area.start + area.used * kTrampolineSize;
  if (!memory.read(patched.start, patched.original.data(), patched.original.size()) ||
      !memory.read(site - window.before, before.data(), before.size()) ||
      !memory.read(site + patched.size, after.data(), after.size())) {
    return false;
  }
  const Bytes code = trampoline(at, area.start, before, instruction, after, site, patched.stop);
  const Bytes entrance = jump(patched.start, at, patched.original.size());
  if (!memory.write(at, code.data(), code.size()) || !memory.write(patched.start, entrance.data(), entrance.size())) {
    return false;
  }
  ++area.used;
  sites.push_back(std::move(patched));
  return true;
}

bool Gate::owns(Address start, Address end) const {
  const auto overlaps = [&](Address first, Address last) { return start < last && first < end; };
  return overlaps(gate::kCode, gate::kEnd) || overlaps(messages.start, messages.end) ||
         std::any_of(trampolines.begin(), trampolines.end(),
                     [&](const auto& area) { return overlaps(area.start, area.start + kTrampolinesSize); });
}

void Gate::forget(Address start, Address end) {
  std::erase_if(sites, [&](const auto& site) { return start < site.start + site.original.size() && site.start < end; });
  std::erase_if(stops, [&](const auto& entry) { return start <= entry.first && entry.first < end; });
}

Bytes jump(Address at, Address target, size_t size) {
  Bytes code(size, 0xcc);
  code[0] = 0xe9;
  const auto distance = static_cast<int32_t>(target - (at + kJumpSize));
  std::memcpy(code.data() + 1, &distance, sizeof distance);
  return code;
}

Bytes trampoline(Address at, Address entry_pointer, const Bytes& before, const Bytes& instruction, const Bytes& after,
                 Address site, Address& stop) {
  const bool syscall = instruction[1] == 0x05;
  constexpr auto kSavedRcx = static_cast<uint32_t>(gate::kSlot + offsetof(gate::Slot, regs.rcx));
  Bytes code = before;
  const auto append = [&](std::initializer_list<uint8_t> bytes) { code.insert(code.end(), bytes); };
  const auto relative_to = [&](Address target) {
    const auto distance = static_cast<int32_t>(target - (at + code.size() + 4));
    uint8_t bytes[4];
    std::memcpy(bytes, &distance, sizeof distance);
    code.insert(code.end(), std::begin(bytes), std::end(bytes));
  };
  if (!syscall) {
    append({0x48, 0x89, 0x0c, 0x25});  // mov %rcx, to where the gate puts it back from
    for (int shift = 0; shift < 32; shift += 8) append({static_cast<uint8_t>(kSavedRcx >> shift)});
  }
  append({0x48, 0x8d, 0x0d});  // lea stop, %rcx
  stop = at + code.size() + 4 + 6;
  relative_to(stop);
  append({0xff, 0x25});  // jmp *entry_pointer
  relative_to(entry_pointer);
  code.insert(code.end(), instruction.begin(), instruction.end());
  if (syscall) {
    append({0x48, 0x8d, 0x0d});  // lea: what the syscall instruction leaves in %rcx
    relative_to(site + kSyscallSize);
  }
  code.insert(code.end(), after.begin(), after.end());
  append({0xe9});
  relative_to(site + instruction.size() + after.size());
  CHECK(code.size() <= kTrampolineSize);
  return code;
}

}  // namespace redrive
