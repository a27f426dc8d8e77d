// The in-process tier (interceptors/DESIGN.md): maps the code into address spaces, patches syscall sites, and turns the
// records of served calls into events. Registers are translated where stops are read and written, so nothing else
// knows of trampolines.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "checkpoint/address_space.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/memory_calls.h"
#include "supervisor/recorder.h"
#include "supervisor/registers.h"

namespace redrive {
namespace {

user_regs_struct at_exit(const gate::Record& record, Address site) {
  user_regs_struct regs{};
  const gate::Registers& r = record.regs;
  regs.rip = site + kSyscallSize;
  regs.rcx = regs.rip;
  regs.orig_rax = r.rax;
  regs.rax = static_cast<uint64_t>(record.result);
  regs.rdi = r.rdi, regs.rsi = r.rsi, regs.rdx = r.rdx, regs.r10 = r.r10, regs.r8 = r.r8, regs.r9 = r.r9;
  regs.rbx = r.rbx, regs.rbp = r.rbp, regs.rsp = r.rsp;
  regs.r12 = r.r12, regs.r13 = r.r13, regs.r14 = r.r14, regs.r15 = r.r15;
  regs.eflags = regs.r11 = r.flags;
  regs.fs_base = record.fs_base, regs.gs_base = record.gs_base;
  return regs;
}

gate::InjectedCall map_trampolines_at(Address at) {
  return {SYS_mmap,
          {at, kTrampolinesSize, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, ~0ull, 0}};
}

uint8_t* ring(gate::Slot& slot) { return reinterpret_cast<uint8_t*>(&slot) + (gate::kRing - gate::kSlot); }

// Whether it is one that the code inside the tracee wrote: the program could have written there too.
bool valid(const gate::Record& record, uint64_t available) {
  if (available < sizeof record || record.size < sizeof record || record.size > available || record.repeat == 0)
    return false;
  uint64_t at = sizeof record;
  for (uint64_t i = 0; i < uint64_t{record.before} + record.after; ++i) {
    if (record.size - at < sizeof(gate::Piece)) return false;
    const auto& piece = *reinterpret_cast<const gate::Piece*>(reinterpret_cast<const uint8_t*>(&record) + at);
    at += sizeof piece;
    if (piece.length > record.size - at) return false;
    at = std::min<uint64_t>(record.size, at + gate::padded(piece.length));
  }
  return true;
}

std::vector<Memory::Piece> pieces_of(const gate::Record& record, bool after) {
  std::vector<Memory::Piece> pieces;
  const auto* at = reinterpret_cast<const uint8_t*>(&record + 1);
  for (uint32_t i = 0; i < record.before + (after ? record.after : 0); ++i) {
    const auto& piece = *reinterpret_cast<const gate::Piece*>(at);
    at += sizeof piece;
    pieces.push_back({piece.address, {at, piece.length}});
    at += gate::padded(piece.length);
  }
  return pieces;
}

}  // namespace

bool Recorder::get_regs(const Thread& thread, user_regs_struct& regs) const {
  if (!redrive::get_regs(thread.tid, regs)) return false;
  if (const Gate* gate = thread.process->gate.get()) regs.rip = gate->canonical(regs.rip);
  return true;
}

bool Recorder::set_regs(const Thread& thread, const user_regs_struct& regs) const {
  user_regs_struct physical = regs;
  if (const Gate* gate = thread.process->gate.get()) physical.rip = gate->physical(regs.rip);
  return redrive::set_regs(thread.tid, physical);
}

// Executes a syscall at `instruction`, whose stops are the same as of the program's own. `base`: the other registers.
// Signals that come meanwhile are held.
Result<int64_t> Recorder::call_at(Thread& thread, Address instruction, const user_regs_struct& base, long number,
                                  std::initializer_list<uint64_t> args) {
  user_regs_struct regs = base;
  regs.rip = instruction;
  regs.rax = static_cast<uint64_t>(number);
  regs.orig_rax = ~0ull;
  int index = 0;
  for (const uint64_t arg : args) syscall_arg(regs, index++) = arg;
  redrive::set_regs(thread.tid, regs);
  int how = PTRACE_CONT;
  for (;;) {
    int status = 0;
    resume(thread, how);
    if (!wait_stop(thread.tid, status)) return Error{"the program was killed"};
    if (status >> 16 == PTRACE_EVENT_SECCOMP) {
      how = PTRACE_SYSCALL;
    } else if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
      break;
    } else if (siginfo_t info{}; status >> 16 == 0 && ptrace(PTRACE_GETSIGINFO, thread.tid, nullptr, &info) == 0) {
      hold(thread, info);
    }
  }
  if (!redrive::get_regs(thread.tid, regs)) return Error{"the program was killed"};
  return static_cast<int64_t>(regs.rax);
}

// Has the thread make these calls, up to the first that fails, with one stop behind the last, whose result it is. Its
// address space has the tier's code; `base` as above.
Result<int64_t> Recorder::make_calls(Thread& thread, const user_regs_struct& base,
                                     const std::vector<gate::InjectedCall>& calls) {
  arena_->set_injected(calls);
  user_regs_struct regs = base;
  regs.rip = arena_->header().inject;
  regs.orig_rax = ~0ull;
  regs.rbp = gate::kOrders + offsetof(gate::Orders, injected);
  regs.rbx = regs.rbp + calls.size() * sizeof(gate::InjectedCall);
  redrive::set_regs(thread.tid, regs);
  for (;;) {
    int status = 0;
    resume(thread, PTRACE_CONT);
    if (!wait_stop(thread.tid, status)) return Error{"the program was killed"};
    if (status >> 16 == PTRACE_EVENT_SECCOMP) break;
    if (siginfo_t info{}; status >> 16 == 0 && ptrace(PTRACE_GETSIGINFO, thread.tid, nullptr, &info) == 0) {
      hold(thread, info);
    }
  }
  if (!redrive::get_regs(thread.tid, regs)) return Error{"the program was killed"};
  return static_cast<int64_t>(regs.orig_rax);
}

// Maps the tier into the address space of a new program, with memory for trampolines near its first instruction. The
// thread is stopped before it, with these registers; `instruction` is a syscall instruction that it has mapped. Where
// that cannot be, calls are left to stops. Fails if the program was killed.
Result<void> Recorder::map_gate(Thread& thread, const user_regs_struct& regs, Address instruction,
                                const std::vector<Mapping>& mappings) {
  Process& process = *thread.process;
  auto gate = std::make_shared<Gate>(*arena_, process.unit);
  if (!gate->take_slot()) return {};
  // The path is put below the stack for a moment.
  Bytes below(arena_->path().size() + 1);
  const Address path = (regs.rsp - 512 - below.size()) & ~uint64_t{15};
  if (!process.memory.read(path, below.data(), below.size())) return {};
  process.memory.write(path, arena_->path().c_str(), below.size());
  ASSIGN_OR_RETURN(const int64_t opened, call_at(thread, instruction, regs, SYS_open, {path, O_RDWR | O_CLOEXEC, 0}));
  process.memory.write(path, below.data(), below.size());
  if (is_error(opened)) return {};
  const auto fd = static_cast<uint64_t>(opened);
  constexpr uint64_t kShared = MAP_SHARED | MAP_FIXED_NOREPLACE;
  constexpr uint64_t kReadWrite = PROT_READ | PROT_WRITE;
  ASSIGN_OR_RETURN(const int64_t code,
                   call_at(thread, instruction, regs, SYS_mmap,
                           {gate::kCode, gate::kCodeSize + gate::kTableSize, PROT_READ | PROT_EXEC, kShared, fd, 0}));
  if (code != static_cast<int64_t>(gate::kCode)) {
    TRY(call_at(thread, instruction, regs, SYS_close, {fd}));
    return {};
  }
  std::vector<gate::InjectedCall> calls{
      {SYS_mmap, {gate::kClock, gate::kClockSize, kReadWrite, kShared, fd, gate::kClock - gate::kCode}},
      {SYS_mmap, {gate::kSlot, gate::kSlotSize, kReadWrite, kShared, fd, gate->slot_offset()}}};
  const auto trampolines = Gate::gap_near(mappings, regs.rip);
  if (trampolines) calls.push_back(map_trampolines_at(*trampolines));
  calls.push_back({SYS_close, {fd}});
  calls.push_back({SYS_brk, {}});
  ASSIGN_OR_RETURN(const int64_t brk, make_calls(thread, regs, calls));
  if (is_error(brk)) {
    TRY(make_calls(thread, regs, {{SYS_close, {fd}}}));
    return {};
  }
  process.brk = static_cast<Address>(brk);
  if (trampolines) gate->add_trampolines(process.memory, *trampolines);
  process.gate = std::move(gate);
  gates_.push_back(process.gate);
  return {};
}

// Gives a forked child a slot of its own in place of its parent's. The thread is stopped before its first instruction,
// with these registers. Fails if it was killed.
Result<void> Recorder::inherit_gate(Thread& thread, const user_regs_struct& regs, std::shared_ptr<Gate> gate) {
  Process& process = *thread.process;
  const auto map_slot = [&](uint64_t flags, uint64_t fd, uint64_t offset) {
    return gate::InjectedCall{SYS_mmap,
                              {gate::kSlot, gate::kSlotSize, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, offset}};
  };
  process.gate = gate;
  bool mapped = false;
  if (gate->take_slot()) {
    ASSIGN_OR_RETURN(const int64_t fd, make_calls(thread, regs, {{SYS_open, {GateArena::kPath, O_RDWR | O_CLOEXEC}}}));
    if (!is_error(fd)) {
      const gate::InjectedCall map = map_slot(MAP_SHARED, static_cast<uint64_t>(fd), gate->slot_offset());
      const gate::InjectedCall close{SYS_close, {static_cast<uint64_t>(fd)}};
      ASSIGN_OR_RETURN(const int64_t made, make_calls(thread, regs, {map, close}));
      mapped = !is_error(made);
      if (!mapped) TRY(make_calls(thread, regs, {close}));
    }
  }
  if (mapped) {
    gates_.push_back(gate);
  } else {
    // The child's sites are patched: it gets a slot that serves nothing.
    TRY(make_calls(thread, regs, {map_slot(MAP_PRIVATE | MAP_ANONYMOUS, ~0ull, 0)}));
    gate::Slot nothing{};
    nothing.want_stop = 1;
    process.memory.put(gate::kSlot, nothing);
  }
  redrive::set_regs(thread.tid, regs);
  return {};
}

// Of the thread's address space; null if nothing is served there.
gate::Slot* Recorder::slot_of(const Thread& thread) {
  const Gate* gate = thread.process->gate.get();
  return gate ? gate->slot() : nullptr;
}

// What the code inside the thread's address space must know before the thread runs user code.
void Recorder::set_slot(Thread& thread) {
  gate::Slot* const slot = slot_of(thread);
  if (!slot) return;
  const Process& process = *thread.process;
  const Unit& unit = *process.unit;
  process.gate->use_table(process.fds);
  slot->maps_files = process.maps_files;
  slot->thread = thread.serial;
  slot->alone = alone(unit);
  slot->others_wait = !unit.ready.empty();
  slot->want_stop = process.gate->broken || !thread.held.empty() || !process.copies_to_reap.empty() ||
                    !unit.joining.empty() || unit.checkpoint_first || unit.checkpoint_wanted;
}

void Recorder::ask_to_stop(const Thread& thread) {
  if (gate::Slot* slot = slot_of(thread)) slot->want_stop = 1;
}

bool Recorder::in_gate(const Thread& thread, Address ip) { return thread.process->gate && Gate::executes_at(ip); }

// The kernel may have written before a signal ended the call that is being served: it will find what it found before.
void Recorder::undo_writes(const Process& process) {
  gate::Slot& slot = *process.gate->slot();
  if (slot.head > gate::kRingSize - sizeof(gate::Record)) return;
  auto& record = *reinterpret_cast<gate::Record*>(ring(slot) + slot.head);
  record.after = 0;
  record.repeat = 1;
  record.size = static_cast<uint32_t>(gate::kRingSize - slot.head);
  if (!valid(record, record.size)) return;
  for (const auto& piece : pieces_of(record, false)) {
    Bytes now(piece.data.size());
    const bool read = process.memory.read(piece.address, now.data(), now.size());
    if (read && !std::equal(now.begin(), now.end(), piece.data.begin())) {
      process.memory.write(piece.address, piece.data.data(), piece.data.size());
    }
  }
}

// At a stop amid a served call: if nothing has come of it yet, it is left to a stop.
void Recorder::leave_gate(Thread& thread) {
  user_regs_struct regs;
  Gate* const gate = thread.process->gate.get();
  if (!gate || !gate->slot() || !redrive::get_regs(thread.tid, regs) || !in_gate(thread, regs.rip)) return;
  gate::Slot& slot = *gate->slot();
  const auto result = static_cast<int64_t>(regs.rax);
  const auto* row = find_row(static_cast<int64_t>(slot.regs.rax), std::span<const uint64_t, 6>(&slot.regs.rdi, 6));
  const bool woken = restarts(result) || (result == -EINTR && row && row->may_block);
  const bool executed = regs.rip == arena_->header().executed && !woken;
  if (slot.phase != gate::Phase::before && (slot.phase != gate::Phase::kernel || executed)) return;
  thread.interrupted = slot.phase == gate::Phase::kernel && regs.rip == arena_->header().executed;
  if (thread.interrupted) undo_writes(*thread.process);
  slot.pending = 0;
  if (std::exchange(gate->pending_opened, false)) {
    end_send(thread, -EINTR);
    gate->unit->log.cancel();
  }
  slot.target = slot.site;
  regs.rip = arena_->header().leave;
  regs.orig_rax = ~0ull;
  redrive::set_regs(thread.tid, regs);
}

// A served call ended while a stop was wanted: the thread is right behind it.
void Recorder::at_boundary(Thread& thread, user_regs_struct regs) {
  gate::Slot& slot = *thread.process->gate->slot();
  slot.phase = gate::Phase::outside;
  regs.rax = slot.regs.rax;
  regs.orig_rax = ~0ull;
  regs.rip = regs.rcx = slot.site + kSyscallSize;
  regs.eflags = regs.r11 = slot.regs.flags;
  redrive::set_regs(thread.tid, regs);
  regs.rip = thread.process->gate->canonical(regs.rip);
  thread.rewound = false;
  raise_held(thread);
  resume_user(thread, regs);
}

// ---- Patching

// What is known of the site, which has just stopped the thread.
Gate::StoppingSite Recorder::stopping_site(const Thread& thread, Address at, SiteKind kind) {
  const Process& process = *thread.process;
  auto [known, fresh] = process.gate->stopping.try_emplace(at);
  if (!fresh) return known->second;
  const auto mappings = read_mappings(process.pid);
  const Mapping* mapping = mappings ? mapping_at(*mappings, at) : nullptr;
  MappedFiles files(process.pid);
  const MappedFile* file = mapping && PatchPlans::is_code(*mapping) ? files.of(*mapping) : nullptr;
  if (!file) return {};
  CodePlan& plan = plans_.of(file->version, *mapping);
  CodeSite& site = plan.site(at - mapping->start);
  site.kind = kind;
  if (const auto sites = cpuid_sites_.find(file->version); kind == SiteKind::cpuid && sites != cpuid_sites_.end()) {
    for (const auto& each : sites->second) {
      if (each.offset == site.offset) site.front = each.front;
    }
  }
  return known->second = {&plan, &site};
}

// Whether it has proved worth it to replace the site's instruction, and that can be done now.
bool Recorder::worth_patching(const Thread& thread, Address at, Gate::StoppingSite stopping,
                              const std::vector<Mapping>& mappings) const {
  const auto [plan, site] = stopping;
  const Mapping* mapping = mapping_at(mappings, at);
  const auto window = mapping ? plan->examine(*site, thread.process->memory, *mapping) : std::nullopt;
  // Others may return to the instructions that would be replaced.
  return window && !in_use(thread, at - window->before, at + instruction_size(site->kind) + window->after);
}

// Tried once in an address space.
void Recorder::replace(Process& process, Address at, CodeSite& site) {
  Gate& gate = *process.gate;
  gate.stopping[at] = {};
  gate.patch(process.memory, {{at, *site.window, site.original, site.kind}});
  if (const PatchedSite* made = gate.patched(at)) {
    site.original = made->original;
    gate.stopping.erase(at);
  }
}

// At a syscall's stop: replaces its instruction if that has proved worth it. True if the thread had to be resumed, and
// comes to the same call again.
bool Recorder::patch(Thread& thread) {
  Process& process = *thread.process;
  Gate* const gate = process.gate.get();
  const Address at = thread.entry.rip - kSyscallSize;
  if (!gate || !gate->slot() || gate->patched(at)) return false;
  const auto args = syscall_args(thread.entry);
  const SyscallRow* row = find_row(static_cast<int64_t>(thread.entry.orig_rax), args);
  if (!row || !row->in_process) return false;
  const auto stopping = stopping_site(thread, at, SiteKind::syscall);
  if (!stopping.site || !stopping.site->stopped_again()) return false;
  const auto mappings = read_mappings(process.pid);
  if (!mappings || !worth_patching(thread, at, stopping, *mappings)) return false;
  const bool near = gate->trampolines_near(at);
  if (!near && !map_trampolines(thread, *mappings, at)) return true;
  replace(process, at, *stopping.site);
  if (!near) {
    rewind(thread, thread.entry);
    return true;
  }
  set_regs(thread, thread.entry);
  return false;
}

// The same at the stop of another instruction, if there is room for a trampoline.
void Recorder::patch_instruction(Thread& thread, Address at, SiteKind kind) {
  Process& process = *thread.process;
  Gate* const gate = process.gate.get();
  if (!gate || !gate->slot() || gate->patched(at)) return;
  const auto stopping = stopping_site(thread, at, kind);
  if (!stopping.site || !stopping.site->stopped_again() || !gate->trampolines_near(at)) return;
  const auto mappings = read_mappings(process.pid);
  if (mappings && worth_patching(thread, at, stopping, *mappings)) replace(process, at, *stopping.site);
}

// Whether another thread of the address space may return to an instruction there.
bool Recorder::in_use(const Thread& thread, Address start, Address end) const {
  return std::any_of(threads_.begin(), threads_.end(), [&](const auto& entry) {
    const Thread& other = *entry.second;
    return &other != &thread && other.process->gate == thread.process->gate && other.entry.rip >= start &&
           other.entry.rip <= end;
  });
}

// Code was mapped that nothing has run yet: patches what has proved worth it in other programs. What maps more memory
// for trampolines is left to the sites' stops.
void Recorder::apply_plan(Process& process, const Mapping& mapping, const FileVersion& file) {
  Gate* const gate = process.gate.get();
  if (!gate || !gate->slot() || !PatchPlans::is_code(mapping)) return;
  auto patches = plans_.of(file, mapping).ready(mapping.start);
  if (!patches.empty()) gate->patch(process.memory, std::move(patches));
}

// Maps memory for trampolines within reach of `near`, if there is a gap. The thread is at a syscall's entry, and must
// be rewound afterwards. Fails if it was killed.
Result<void> Recorder::map_trampolines(Thread& thread, const std::vector<Mapping>& mappings, Address near) {
  const auto at = Gate::gap_near(mappings, near);
  if (!at) return {};
  ASSIGN_OR_RETURN(const int64_t made, make_calls(thread, thread.entry, {map_trampolines_at(*at)}));
  if (made == static_cast<int64_t>(*at)) thread.process->gate->add_trampolines(thread.process->memory, *at);
  return {};
}

// Whether the call would change memory that is the tier's.
bool Recorder::touches_gate(const Thread& thread) const {
  const Gate* gate = thread.process->gate.get();
  if (!gate) return false;
  const auto& args = thread.args;
  const auto owns = [&](Address start, uint64_t length) { return gate->owns(start, start + length); };
  switch (thread.row->special) {
    case Special::mmap:
      return (args[3] & MAP_FIXED) && owns(args[0], args[1]);
    case Special::munmap:
    case Special::mprotect:
    case Special::madvise:
      return owns(args[0], args[1]);
    case Special::mremap:
      return owns(args[0], args[1]) || ((args[3] & MREMAP_FIXED) && owns(args[4], args[2]));
    default:
      return false;
  }
}

// The program's mappings have changed: what was patched there is gone.
void Recorder::forget_patches(Thread& thread, int64_t result) {
  Gate* gate = thread.process->gate.get();
  if (!gate || is_error(result)) return;
  const auto& args = thread.args;
  switch (thread.row->special) {
    case Special::munmap:
      gate->forget(args[0], args[0] + args[1]);
      break;
    case Special::mmap:
      gate->forget(static_cast<Address>(result), static_cast<Address>(result) + args[1]);
      break;
    case Special::mremap:
      gate->forget(args[0], args[0] + args[1]);
      gate->forget(static_cast<Address>(result), static_cast<Address>(result) + args[2]);
      break;
    default:
      break;
  }
}

// ---- Records

// Makes events of all that was served so far, in the order in which it happened. Nothing that is recorded runs
// meanwhile (one processor), so a send's record is here if anybody has received its bytes.
void Recorder::drain() {
  std::erase_if(gates_, [](const auto& gate) { return gate.expired(); });
  struct Source {
    std::shared_ptr<Gate> gate;
    gate::Record* next;
  };
  const auto next_record = [this](Gate& gate) -> gate::Record* {
    gate::Slot& slot = *gate.slot();
    const bool pending = gate.drained == slot.head;
    if (gate.broken || (pending && (slot.pending != slot.head + 1 || gate.pending_opened))) return nullptr;
    auto& record = *reinterpret_cast<gate::Record*>(ring(slot) + gate.drained);
    const uint64_t end = pending ? gate::kRingSize : slot.head;
    if (end <= gate::kRingSize && gate.drained <= end && valid(record, end - gate.drained) &&
        gate.unit->threads.contains(record.thread)) {
      return &record;
    }
    gate.broken = true;
    slot.want_stop = 1;
    add_unsure(*gate.unit, "the program wrote into the memory that it shares with the recorder: calls are missing");
    return nullptr;
  };
  std::vector<Source> sources;
  for (const auto& known : gates_) {
    auto gate = known.lock();
    const gate::Slot& slot = *gate->slot();
    if (auto* record = next_record(*gate)) {
      begin_served(*gate, slot.head);
      sources.push_back({std::move(gate), record});
    } else if (gate->drained == slot.head && slot.phase == gate::Phase::outside && slot.head) {
      gate->slot()->head = gate->drained = 0;
    }
  }
  while (!sources.empty()) {
    auto first = std::min_element(sources.begin(), sources.end(),
                                  [](const Source& a, const Source& b) { return a.next->stamp < b.next->stamp; });
    Gate& gate = *first->gate;
    if (gate.drained == gate.slot()->head) {
      open_served(gate, *first->next);
      gate.pending_opened = true;
    } else {
      if (first->next->counter || first->next->regs.rax == gate::kCpuidNumber) {
        add_served_trap(gate, *first->next);
      } else {
        if (!std::exchange(gate.pending_opened, false)) open_served(gate, *first->next);
        close_served(gate, *first->next);
      }
      gate.drained += first->next->size;
    }
    first->next = next_record(gate);
    if (first->next) continue;
    gate.unit->served_ns.reset();
    gate::Slot& slot = *gate.slot();
    if (slot.phase == gate::Phase::outside && !slot.pending) slot.head = gate.drained = 0;
    sources.erase(first);
  }
}

// The clock of served events is not read at each: it goes evenly from the last drain to this one.
void Recorder::begin_served(Gate& gate, uint64_t head) {
  Unit& unit = *gate.unit;
  uint64_t count = 0;
  for (uint64_t at = gate.drained; at < head;) {
    const auto& record = *reinterpret_cast<const gate::Record*>(ring(*gate.slot()) + at);
    if (!valid(record, head - at)) break;
    at += record.size;
    count += record.repeat;
  }
  unit.stops_saved_ns += count * limits_.replayed_call_ns;
  const uint64_t now = interval_ns(unit);
  const uint64_t from = std::min(unit.drained_ns, now);
  unit.served_step_ns = (now - from) / (count + 1);
  unit.served_ns = from;
  unit.drained_ns = now;
}

void Recorder::open_served(Gate& gate, const gate::Record& record) {
  Unit& unit = *gate.unit;
  *unit.served_ns += unit.served_step_ns;
  Thread& thread = *unit.threads.at(record.thread);
  thread.entry = at_exit(record, gate.canonical(record.site));
  thread.resumed.rip = 0;
  thread.rewound = false;
  thread.args = syscall_args(thread.entry);
  thread.row = find_row(static_cast<int64_t>(record.regs.rax), thread.args);
  open_call(thread, Memory::of(pieces_of(record, false)));
}

// cpuid, rdtsc and rdtscp are no calls.
void Recorder::add_served_trap(Gate& gate, const gate::Record& record) {
  Unit& unit = *gate.unit;
  *unit.served_ns += unit.served_step_ns;
  Thread& thread = *unit.threads.at(record.thread);
  thread.resumed.rip = 0;
  thread.rewound = false;
  const Address at = gate.canonical(record.site);
  user_regs_struct before{};
  before.rip = at;
  if (!record.counter) {
    before.rax = record.regs.rdi;
    before.rcx = record.regs.rsi;
    user_regs_struct after = before;
    answer(cpuid_instruction(), after, answers_);
    add_trap(thread, cpuid_instruction(), before, after);
    return;
  }
  before.rax = record.regs.rax, before.rbx = record.regs.rbx;
  before.rcx = record.regs.rcx, before.rdx = record.regs.rdx;
  const PatchedSite* const patched = gate.patched(at);
  const auto instruction = counter_instruction(instruction_size(patched ? patched->kind : SiteKind::rdtsc));
  user_regs_struct after = before;
  answer_counter(instruction, static_cast<uint64_t>(record.result), after);
  add_trap(thread, instruction, before, after);
}

void Recorder::close_served(Gate& gate, gate::Record& record) {
  Thread& thread = *gate.unit->threads.at(record.thread);
  const uint32_t times = std::exchange(record.repeat, 0);  // calls that follow are not counted here any more
  gate.unit->served_calls += times;
  close_call(thread, record.result, Memory::of(pieces_of(record, true)), &record, times);
}

}  // namespace redrive
