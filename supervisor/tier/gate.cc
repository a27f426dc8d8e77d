#include "supervisor/tier/gate.h"

#include <cpuid.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/check.h"
#include "base/procfs.h"
#include "interceptors/gate_calls.h"
#include "interceptors/trapped_instructions.h"

extern "C" const uint8_t redrive_gate_code[];
extern "C" const uint8_t redrive_gate_code_end[];

namespace redrive {
namespace {

constexpr unsigned long kFsGsBase = 1 << 1;  // HWCAP2_FSGSBASE
constexpr uint64_t kReach = 1ull << 31;      // of a jump
constexpr uint64_t kReachMargin = 1 << 24;
constexpr uint8_t kNothing = 0xcc;          // never executed
constexpr uint64_t kWorthPatching = 2;      // times that a thread comes to a site: many sites are used only once
constexpr uint64_t kReadAStop = 16 * 1024;  // bytes of code that can be read in about the time of a stop

// The contents of the mapped file; empty if it cannot be read or no longer exists.
Bytes contents_of(const Mapping& mapping) {
  const Fd file(::open(mapping.name.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0 || info.st_dev != mapping.device || info.st_ino != mapping.inode)
    return {};
  Bytes contents(static_cast<size_t>(info.st_size));
  const ssize_t got = ::read(file.get(), contents.data(), contents.size());
  contents.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return contents;
}

// Reads from an address up to the first unreadable page: a mapping may be much longer than its file.
Bytes read_readable(const Memory& memory, Address start, uint64_t length) {
  constexpr uint64_t kAtOnce = 4 << 20;
  Bytes bytes;
  while (bytes.size() < length) {
    const size_t had = bytes.size(), wanted = std::min(kAtOnce, length - had);
    bytes.resize(had + wanted);
    const size_t got = memory.read_some(start + had, bytes.data() + had, wanted);
    bytes.resize(had + got);
    if (got < wanted) break;
  }
  return bytes;
}

}  // namespace

Result<std::unique_ptr<GateArena>> GateArena::make() {
  if (!(getauxval(AT_HWCAP2) & kFsGsBase)) {
    return Error{"this processor or kernel does not let programs read their segment bases"};
  }
  ASSIGN_OR_RETURN(SharedMemory code, SharedMemory::make("redrive", gate::kCommonSize, SharedMemory::Tracees::read));
  ASSIGN_OR_RETURN(SharedMemory clock,
                   SharedMemory::make("redrive-clock", gate::kClockSize, SharedMemory::Tracees::write));
  std::unique_ptr<GateArena> arena(new GateArena(std::move(code), std::move(clock)));
  const auto size = static_cast<size_t>(redrive_gate_code_end - redrive_gate_code);
  CHECK(size <= gate::kCodeSize - gate::kOrdersSize);
  std::memcpy(arena->at(gate::kCode), redrive_gate_code, size);
  std::memcpy(arena->at(gate::kTable), gate_table().get(), sizeof(gate::Table));
  if (getrandom(&arena->secret_, sizeof arena->secret_, 0) != sizeof arena->secret_)
    return errno_error("cannot make a random number");
  return arena;
}

Bytes GateArena::loader(const SharedMemory& slot) const {
  Bytes loader(at(header().load), at(header().load_end));
  for (const SharedMemory* file : {&code_, &clock_, &slot}) {
    CHECK(file->path().size() < gate::kMostPath);
    loader.insert(loader.end(), file->path().begin(), file->path().end());
    loader.resize(loader.size() + gate::kMostPath - file->path().size());
  }
  return loader;
}

bool GateArena::can_open(pid_t pid) {
  struct stat info {};
  if (stat(proc_path(pid, "").c_str(), &info) != 0 || info.st_uid != geteuid() || info.st_gid != getegid())
    return false;
  const auto same = [&](const char* what) {
    struct stat ours {};
    struct stat theirs {};
    return stat(proc_path(getpid(), what).c_str(), &ours) == 0 && stat(proc_path(pid, what).c_str(), &theirs) == 0 &&
           ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev;
  };
  return same("ns/pid") && same("ns/mnt") && same("root");
}

std::vector<UntracedSite> GateArena::untraced() const {
  const auto& table = *reinterpret_cast<const gate::Table*>(at(gate::kTable));
  return {{header().executed, gate_numbers(table)}, {header().injected, {SYS_mmap, SYS_close, SYS_brk}}};
}

std::array<ExactCall, 3> GateArena::loader_calls() const {
  constexpr std::nullopt_t any = std::nullopt;
  constexpr uint64_t kProtection = PROT_READ | PROT_EXEC, kFlags = MAP_SHARED | MAP_FIXED_NOREPLACE;
  return {{{SYS_open, {any, O_RDONLY | O_CLOEXEC, any, secret_, secret_, secret_}},
           {SYS_open, {any, O_RDWR | O_CLOEXEC, any, secret_, secret_, secret_}},
           {SYS_mmap, {gate::kCode, gate::kCommonSize, kProtection, kFlags | gate::load_flags(secret_), any, 0}}}};
}

gate::KnownFile* GateArena::files() { return reinterpret_cast<gate::KnownFiles*>(at(gate::kFiles))->file; }

// The file's place in the list, or the free place for it.
uint32_t GateArena::place_of(const FileVersion& file) {
  uint32_t place = gate::place_of(file.inode, file.size, file.modified_ns);
  for (; files()[place].held; place = (place + 1) % gate::kKnownFiles) {
    const gate::KnownFile& k = files()[place];
    if (file == FileVersion{k.device, k.inode, k.size, k.modified_ns, k.changed_ns}) break;
  }
  return place;
}

std::optional<uint32_t> GateArena::add_file(const FileVersion& file, gate::MappedCode code) {
  constexpr uint32_t kMost = gate::kKnownFiles / 4 * 3;  // leaves free places, where searches end
  const uint32_t place = place_of(file);
  gate::KnownFile& known = files()[place];
  if (known.held) {
    const bool news = known.code == gate::MappedCode::unknown;
    if (news) std::atomic_ref(known.code).store(code, std::memory_order_release);
    return place;
  }
  if (files_ == kMost) return std::nullopt;
  ++files_;
  known = {file.device, file.inode, file.size, file.modified_ns, file.changed_ns, 0, code};
  __atomic_store_n(&known.held, 1, __ATOMIC_RELEASE);
  return place;
}

void GateArena::forget_file(uint64_t device, uint64_t inode) {
  constexpr uint64_t kNoSize = ~uint64_t{};
  for (uint32_t place = 0; place < gate::kKnownFiles; ++place) {
    gate::KnownFile& known = files()[place];
    if (known.held && known.device == device && known.inode == inode) {
      __atomic_store_n(&known.size, kNoSize, __ATOMIC_SEQ_CST);
    }
  }
}

void GateArena::code_is_replaced(const FileVersion& file) {
  gate::KnownFile& known = files()[place_of(file)];
  if (known.held && known.code == gate::MappedCode::plain) {
    std::atomic_ref(known.code).store(gate::MappedCode::replaced, std::memory_order_release);
  }
}

void GateArena::watch(uint64_t inode) {
  gate::WatchedFiles& watched = this->watched();
  const uint64_t bit = gate::watched_bit(inode);
  __atomic_fetch_or(&watched.bits[bit / 64], uint64_t{1} << bit % 64, __ATOMIC_SEQ_CST);
  __atomic_store_n(&watched.any, 1, __ATOMIC_SEQ_CST);
}

void GateArena::watch_none() {
  gate::WatchedFiles& watched = this->watched();
  __atomic_store_n(&watched.any, 0, __ATOMIC_SEQ_CST);
  for (uint64_t& bits : watched.bits) __atomic_store_n(&bits, 0, __ATOMIC_SEQ_CST);
}

void GateArena::set_injected(std::span<const gate::InjectedCall> calls) {
  CHECK(calls.size() <= gate::kMaxInjected);
  std::copy(calls.begin(), calls.end(), orders().injected);
}

void GateArena::set_slot_path(const std::string& path) {
  CHECK(path.size() < gate::kMostPath);
  std::memcpy(orders().slot_path, path.c_str(), path.size() + 1);
}

void GateArena::set_answers(std::span<const gate::CpuidAnswer> answers) {
  CHECK(answers.size() <= gate::kMaxAnswers);
  std::copy(answers.begin(), answers.end(), orders().cpuid.answers);
  __atomic_store_n(&orders().cpuid.count, answers.size(), __ATOMIC_RELEASE);
}

std::optional<PatchWindow> CodeSegments::window(const Memory& memory, const Mapping& mapping, Address address,
                                                SiteKind kind, uint64_t times) {
  if (!is_unchanging(mapping)) return std::nullopt;
  const Lock lock(mutex_);
  Segment& known = segments_[key(mapping)];
  const uint64_t at = address - mapping.start;
  Site& site = known.sites[at];
  site.kind = kind;
  site.times += times;
  known.times += times;
  // Stops are cheaper than reading code in which there are few of them.
  if (site.times < kWorthPatching || known.times < mapping.length() / kReadAStop) return std::nullopt;
  if (std::exchange(site.examined, true)) return site.window;
  const CodeSegment& code = code_of(known, memory, mapping);
  if (kind != SiteKind::cpuid) return site.window = code.window(at);
  if (!known.cpuid) known.cpuid = cpuid_sites(contents_of(mapping));
  const auto front = std::find_if(known.cpuid->begin(), known.cpuid->end(),
                                  [&](const CpuidSite& each) { return each.offset == mapping.offset + at; });
  return site.window = code.window(at, front == known.cpuid->end() ? std::vector<uint8_t>() : front->front);
}

std::optional<PatchWindow> CodeSegments::window_at(const Memory& memory, const Mapping& mapping, Address place) {
  const auto read_from = [&](Address start) {
    return [&memory, start](int64_t offset, std::span<uint8_t> to) {
      return memory.read_some(start + static_cast<uint64_t>(offset), to.data(), to.size());
    };
  };
  if (!is_unchanging(mapping)) {
    // The code that is there now. Only compiled functions are expected here, into which nothing jumps from far away.
    constexpr uint64_t kAround = 64 << 10;
    const Address start = std::max(mapping.start, place - std::min(place, kAround));
    Bytes code(std::min(mapping.end, place + kAround) - start);
    code.resize(memory.read_some(start, code.data(), code.size()));
    return CodeSegment(std::move(code)).window_at(place - start, start, read_from(start));
  }
  const Lock lock(mutex_);
  return code_of(segments_[key(mapping)], memory, mapping)
      .window_at(place - mapping.start, mapping.start, read_from(mapping.start));
}

bool CodeSegments::is_unchanging(const Mapping& mapping) {
  return mapping.inode != 0 && !mapping.shared && !(mapping.protection & PROT_WRITE);
}

const CodeSegment& CodeSegments::code_of(Segment& segment, const Memory& memory, const Mapping& mapping) {
  if (!segment.code) segment.code.emplace(read_readable(memory, mapping.start, mapping.length()));
  return *segment.code;
}

bool CodeSegments::is_program(const Mapping& mapping) {
  const Lock lock(mutex_);
  auto& file = segments_[key(mapping)].file;
  if (!file) file = code_file(mapping.name);
  return file == CodeFile::program;
}

Gate::Gate(GateArena& arena, const Gate& parent)
    : messages(parent.messages), sites(parent.sites), trampolines(parent.trampolines), arena_(arena) {}

bool Gate::take_slot() {
  auto memory = SharedMemory::make("redrive-slot", gate::kSlotSize, SharedMemory::Tracees::write);
  if (!memory) return false;
  memory_ = std::move(*memory);
  slot_ = reinterpret_cast<gate::Slot*>(memory_->data());
  list_areas();
  return true;
}

void Gate::list_areas() {
  for (size_t i = 0; i < std::min<size_t>(trampolines.size(), gate::kAreas); ++i) {
    slot_->area[i] = {trampolines[i].start, trampolines[i].start + kTrampolinesSize};
  }
  slot_->areas = static_cast<uint32_t>(trampolines.size());
}

Address Gate::canonical(Address ip) const {
  const bool inside = std::any_of(trampolines.begin(), trampolines.end(), [&](const Trampolines& area) {
    return ip >= area.start && ip < area.start + kTrampolinesSize;
  });
  if (!inside) return ip;
  for (const auto& site : sites) {
    if (ip == site.stop) return site.site;
    if (ip == site.stop + instruction_size(site.kind)) return site.behind();
    if (ip >= site.moved && ip - site.moved < site.moved_size()) return site.behind() + (ip - site.moved);
  }
  return ip;
}

Address Gate::physical(Address ip) const {
  for (const auto& site : sites) {
    if (ip == site.site) return site.stop;
    if (ip == site.behind()) return site.stop + instruction_size(site.kind);
    if (ip > site.behind() && ip - site.behind() < site.moved_size()) return site.moved + (ip - site.behind());
  }
  return ip;
}

void Gate::make_canonical(user_regs_struct& regs) const {
  const Address ip = std::exchange(regs.rip, canonical(regs.rip));
  if (regs.rcx == ip) regs.rcx = regs.rip;
}

const PatchedSite* Gate::patched(Address site) const {
  const auto found = std::lower_bound(sites.begin(), sites.end(), site,
                                      [](const PatchedSite& each, Address wanted) { return each.site < wanted; });
  return found == sites.end() || found->site != site ? nullptr : &*found;
}

Gate::Trampolines* Gate::trampolines_near(Address site) {
  for (auto& known : trampolines) {
    const uint64_t distance = known.start > site ? known.start - site : site - known.start;
    if (distance < kReach - kReachMargin && !known.used.all()) return &known;
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

void Gate::add_trampolines(const Memory& memory, Address start) {
  const uint64_t entries[] = {arena_.header().entry, arena_.header().cpuid};
  memory.put(start, entries);
  trampolines.emplace_back(start);
  if (slot_) list_areas();
}

void Gate::patch(const Memory& memory, std::vector<SitePatch> patches) {
  std::stable_sort(patches.begin(), patches.end(), [](const auto& a, const auto& b) { return a.start() < b.start(); });
  std::vector<MemoryPiece> windows;
  for (const auto& patch : patches) windows.push_back({patch.start(), nullptr, patch.size()});
  std::vector<Stretch> code, stretches = memory.stretches(windows);
  std::vector<PatchedSite> made;
  auto stretch = stretches.begin();
  for (const SitePatch& patch : patches) {
    while (stretch != stretches.end() && stretch->end() < patch.start() + patch.size()) ++stretch;
    if (stretch == stretches.end()) break;
    if (stretch->start > patch.start()) continue;
    const auto overlaps = [&](const PatchedSite& other) {
      return patch.start() < other.end() && other.start < patch.start() + patch.size();
    };
    if (std::any_of(sites.begin(), sites.end(), overlaps) || (!made.empty() && overlaps(made.back()))) continue;
    uint8_t* const window = stretch->bytes.data() + (patch.start() - stretch->start);
    const Bytes held(window, window + patch.size());
    if (!patch.original.empty() && patch.original != held) continue;
    Trampolines* const area = trampolines_near(patch.site);
    if (!area) continue;
    size_t index = 0;
    while (area->used[index]) ++index;
    const Address at = area->start + index * kTrampolineSize;
    PatchedSite site{patch.site, patch.start(), held, 0, 0, patch.kind};
    const Address entry = area->start + (patch.kind == SiteKind::cpuid) * sizeof(uint64_t);
    Bytes bytes = trampoline(at, entry, patch.window, site);
    if (bytes.empty()) continue;
    area->used.set(index);
    bytes.resize(kTrampolineSize, kNothing);
    if (code.empty() || code.back().end() != at) code.push_back({at, {}});
    code.back().bytes.insert(code.back().bytes.end(), bytes.begin(), bytes.end());
    const Bytes leads = jump(site.start, at, held.size());
    std::copy(leads.begin(), leads.end(), window);
    made.push_back(std::move(site));
  }
  // Whether such a change lies there.
  const auto is_changed = [&](const Stretch& each) {
    return std::any_of(made.begin(), made.end(),
                       [&](const auto& site) { return site.start >= each.start && site.start < each.end(); });
  };
  std::erase_if(stretches, [&](const Stretch& each) { return !is_changed(each); });
  const auto write = [&](const Stretch& each) {
    return memory.write(each.start, each.bytes.data(), each.bytes.size());
  };
  if (std::all_of(code.begin(), code.end(), write) && std::all_of(stretches.begin(), stretches.end(), write)) {
    sites.insert(sites.end(), std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
    std::sort(sites.begin(), sites.end(), [](const auto& x, const auto& y) { return x.site < y.site; });
    return;
  }
  // Nothing of it may remain.
  for (const auto& site : made) {
    memory.write(site.start, site.original.data(), site.original.size());
    release(site);
  }
}

void Gate::undo_patches(Address address, std::span<uint8_t> copy) const {
  for (const auto& site : sites) {
    const Address first = std::max(address, site.start), last = std::min(address + copy.size(), site.end());
    if (first < last) std::copy_n(site.original.data() + (first - site.start), last - first, &copy[first - address]);
  }
}

void Gate::release(const PatchedSite& site) {
  for (auto& area : trampolines) {
    if (site.stop >= area.start && site.stop < area.start + kTrampolinesSize)
      area.used.reset((site.stop - area.start) / kTrampolineSize);
  }
}

bool Gate::owns(Address start, Address end) const {
  const auto overlaps = [&](Address first, Address last) { return start < last && first < end; };
  return overlaps(gate::kCode, gate::kEnd) || overlaps(messages.start, messages.end) ||
         std::any_of(trampolines.begin(), trampolines.end(),
                     [&](const auto& area) { return overlaps(area.start, area.start + kTrampolinesSize); });
}

bool Gate::touches(Address start, Address end) const {
  return owns(start, end) || std::any_of(sites.begin(), sites.end(), [&](const PatchedSite& site) {
           return start < site.end() && site.start < end;
         });
}

void Gate::forget(Address start, Address end) {
  std::erase_if(sites, [&](const PatchedSite& site) {
    const bool gone = start < site.end() && site.start < end;
    if (gone) release(site);
    return gone;
  });
}

Bytes jump(Address at, Address target, size_t size) {
  Bytes code(size, kNothing);
  code[0] = 0xe9;
  const auto distance = static_cast<int32_t>(target - (at + kJumpSize));
  std::memcpy(code.data() + 1, &distance, sizeof distance);
  return code;
}

bool append_moved(Bytes& code, Address at, Bytes moved, const PatchWindow& window, Address from) {
  const Address to = at + code.size(), behind = from + moved.size();
  for (size_t k = 0; k + sizeof(int32_t) <= moved.size(); ++k) {
    if (!(window.displacements >> k & 1)) continue;
    int32_t distance;
    std::memcpy(&distance, moved.data() + k, sizeof distance);
    const int64_t farther = distance + static_cast<int64_t>(from - to);
    if (farther != static_cast<int32_t>(farther)) return false;
    distance = static_cast<int32_t>(farther);
    std::memcpy(moved.data() + k, &distance, sizeof distance);
  }
  const auto append_distance = [&](Address target) {
    const auto distance = static_cast<int32_t>(target - (at + code.size() + sizeof(int32_t)));
    code.resize(code.size() + sizeof distance);
    std::memcpy(code.data() + code.size() - sizeof distance, &distance, sizeof distance);
  };
  code.insert(code.end(), moved.begin(), moved.end() - (window.ends_in_jump ? kShortJumpSize : 0));
  if (window.ends_in_jump) {
    constexpr uint8_t kNearJump = 0xe9;
    const uint8_t opcode = moved[moved.size() - kShortJumpSize];
    if (opcode == kShortJump) {
      code.push_back(kNearJump);
    } else if (is_counting_jump(opcode)) {  // over a jump over the near one: near jumps have no such condition
      code.insert(code.end(), {opcode, 2, kShortJump, kJumpSize, kNearJump});
    } else {
      code.insert(code.end(), {0x0f, static_cast<uint8_t>(0x10 + opcode)});
    }
    append_distance(behind + static_cast<uint64_t>(static_cast<int8_t>(moved.back())));
  }
  code.push_back(0xe9);
  append_distance(behind);
  return true;
}

Bytes trampoline(Address at, Address entry_pointer, const PatchWindow& window, PatchedSite& site) {
  constexpr auto kSavedRcx = static_cast<uint32_t>(gate::kSlot + offsetof(gate::Slot, regs.rcx));
  const SiteKind kind = site.kind;
  const bool counter = kind == SiteKind::rdtsc || kind == SiteKind::rdtscp;
  Bytes code(site.original.begin(), site.original.begin() + window.before);
  const auto append = [&](std::initializer_list<uint8_t> bytes) { code.insert(code.end(), bytes); };
  const auto relative_to = [&](Address target) {
    const auto distance = static_cast<int32_t>(target - (at + code.size() + 4));
    uint8_t bytes[4];
    std::memcpy(bytes, &distance, sizeof distance);
    code.insert(code.end(), std::begin(bytes), std::end(bytes));
  };
  if (counter) {
    append({0x48, 0x89, 0x0c, 0x25});  // mov %rcx, to where the gate restores it from
    for (int shift = 0; shift < 32; shift += 8) append({static_cast<uint8_t>(kSavedRcx >> shift)});
  }
  // lea stop to a register that the instruction overwrites and does not read: %rcx, %rdx
  append({0x48, 0x8d, kind == SiteKind::cpuid ? uint8_t{0x15} : uint8_t{0x0d}});
  site.stop = at + code.size() + 4 + 6;
  relative_to(site.stop);
  append({0xff, 0x25});  // jmp *entry_pointer
  relative_to(entry_pointer);
  switch (kind) {
    case SiteKind::syscall:
      append({0x0f, 0x05});
      append({0x48, 0x8d, 0x0d});  // lea: the value that the syscall instruction leaves in %rcx
      relative_to(site.behind());
      break;
    case SiteKind::cpuid:
      code.insert(code.end(), std::begin(kCpuidStandIn), std::end(kCpuidStandIn));
      break;
    case SiteKind::rdtsc:
      append({0x0f, 0x31});
      break;
    case SiteKind::rdtscp:
      append({0x0f, 0x01, 0xf9});
      break;
  }
  site.moved = at + code.size();
  const Bytes after(site.original.end() - window.after, site.original.end());
  if (!append_moved(code, at, after, window, site.behind())) return {};
  CHECK(code.size() <= kTrampolineSize);
  return code;
}

}  // namespace redrive
