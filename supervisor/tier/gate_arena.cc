#include "supervisor/tier/gate_arena.h"

#include <cpuid.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>

#include "base/assert.h"
#include "interceptors/gate_calls.h"

extern "C" const uint8_t redrive_gate_code[];
extern "C" const uint8_t redrive_gate_code_end[];

namespace redrive {
namespace {

volatile std::sig_atomic_t refused = 0;

void skip_refused(int, siginfo_t*, void* context) {
  constexpr greg_t kSize = 5;  // of rdfsbase and rdgsbase
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP] += kSize;
  refused = 1;
}

// Whether programs can read their segment bases. Kernels say so (HWCAP2_FSGSBASE), but some paravirtualized ones have
// the processor allow it and do not: so it is tried.
bool try_to_read_bases() {
  constexpr unsigned long kFsGsBase = 1 << 1;
  if (getauxval(AT_HWCAP2) & kFsGsBase) return true;
  struct sigaction skip {};
  struct sigaction before {};
  skip.sa_sigaction = skip_refused;
  skip.sa_flags = SA_SIGINFO;
  sigset_t illegal, mask;
  sigemptyset(&illegal);
  sigaddset(&illegal, SIGILL);
  sigaction(SIGILL, &skip, &before);
  pthread_sigmask(SIG_UNBLOCK, &illegal, &mask);
  uint64_t base = 0;
  asm volatile("rdfsbase %0; rdgsbase %0" : "=r"(base));
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  sigaction(SIGILL, &before, nullptr);
  return !refused;
}

// Signal handlers belong to all threads: it is tried once.
bool can_read_bases() {
  static const bool can = try_to_read_bases();
  return can;
}

}  // namespace

Result<std::unique_ptr<GateArena>> GateArena::make() {
  if (!can_read_bases()) {
    return Error{"this processor or kernel does not let programs read their segment bases"};
  }
  ASSIGN_OR_RETURN(SharedMemory code, SharedMemory::make("redrive", gate::kCommonSize, SharedMemory::Tracees::read));
  ASSIGN_OR_RETURN(SharedMemory clock,
                   SharedMemory::make("redrive-clock", gate::kClockSize, SharedMemory::Tracees::write));
  std::unique_ptr<GateArena> arena(new GateArena(std::move(code), std::move(clock)));
  const auto size = static_cast<size_t>(redrive_gate_code_end - redrive_gate_code);
  ASSERT(size <= gate::kCodeSize - gate::kOrdersSize);
  arena->code_.populate(0, size);
  std::memcpy(arena->at(gate::kCode), redrive_gate_code, size);
  arena->code_.populate(gate::kTable - gate::kCode, sizeof(gate::Table));
  fill_gate_table(*new (arena->at(gate::kTable)) gate::Table());
  if (getrandom(&arena->secret_, sizeof arena->secret_, 0) != sizeof arena->secret_)
    return errno_error("cannot make a random number");
  return arena;
}

Bytes GateArena::loader(const SharedMemory& slot) const {
  Bytes loader(at(header().load), at(header().load_end));
  for (const SharedMemory* file : {&code_, &clock_, &slot}) {
    ASSERT(file->path().size() < gate::kMostPath);
    loader.insert(loader.end(), file->path().begin(), file->path().end());
    loader.resize(loader.size() + gate::kMostPath - file->path().size());
  }
  return loader;
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
  ASSERT(calls.size() <= gate::kMaxInjected);
  std::copy(calls.begin(), calls.end(), orders().injected);
}

void GateArena::set_lasting(std::span<const gate::InjectedCall> calls) {
  static_assert(kLasting % alignof(gate::InjectedCall) == 0);
  ASSERT(kLasting + calls.size_bytes() <= gate::kOrders + gate::kOrdersSize);
  std::copy(calls.begin(), calls.end(), reinterpret_cast<gate::InjectedCall*>(at(kLasting)));
}

void GateArena::set_slot_path(const std::string& path) {
  ASSERT(path.size() < gate::kMostPath);
  std::memcpy(orders().slot_path, path.c_str(), path.size() + 1);
}

void GateArena::set_answers(std::span<const gate::CpuidAnswer> answers) {
  ASSERT(answers.size() <= gate::kMaxAnswers);
  std::copy(answers.begin(), answers.end(), orders().cpuid.answers);
  __atomic_store_n(&orders().cpuid.count, answers.size(), __ATOMIC_RELEASE);
}

}  // namespace redrive
