#include "supervisor/replay/unit_gates.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "supervisor/replay/memory_change.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

// How far below other memory trampolines lie. The kernel maps what the program asks for right below what is there
// already, and what is in the way of that has to be taken out.
constexpr uint64_t kBelow = 1ull << 30;

}  // namespace

Gate* UnitGates::of(ProcessSerial process) const {
  const auto found = gates_.find(process);
  return found == gates_.end() ? nullptr : found->second.get();
}

std::shared_ptr<Gate> UnitGates::shared(ProcessSerial process) const {
  const auto found = gates_.find(process);
  return found == gates_.end() ? nullptr : found->second;
}

Result<void> UnitGates::map(const std::vector<ProcessSerial>& sharing, pid_t tid) {
  if (!tier_ || sharing.empty()) return {};
  const Stub& stub = unit_.stub(sharing.front());
  ASSIGN_OR_RETURN(const auto mapped, mapped_from(stub.pid(), gate::kCode));
  auto gate = std::make_shared<Gate>(*tier_->arena);
  if ((mapped && mapped->start < gate::kEnd) || !gate->take_slot()) return {};
  gate->slot()->replay = 1;
  StubCalls calls(stub, tid);
  TRY(calls.map_file(tier_->arena->code().path(), gate::kCode, gate::kCommonSize, PROT_READ | PROT_EXEC,
                     MAP_SHARED_VALIDATE, 0));
  TRY(calls.map_file(gate->slot_memory().path(), gate::kSlot, gate::kSlotSize, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
  ASSIGN_OR_RETURN(gate->slot()->messages, map_messages(calls, stub.pid()));
  TRY(calls.run());
  gate->slot_memory().close();
  gate->messages = {gate->slot()->messages, gate->slot()->messages + store_.payloads().size()};
  for (const ProcessSerial serial : sharing) gates_[serial] = gate;
  return {};
}

Result<void> UnitGates::map_all() {
  for (const auto& [serial, process] : unit_.processes()) {
    const ProcessSerial owner = unit_.memory_owner(serial);
    if (owner == serial) {
      TRY(map({serial}, process.stub.pid()));
    } else if (auto gate = shared(owner)) {
      add(serial, std::move(gate));  // it runs on the memory of another, and finds the tier there
    }
  }
  return {};
}

// Maps the messages that the intervals of the replay set need from each other where nothing else is.
Result<Address> UnitGates::map_messages(StubCalls& calls, pid_t pid) const {
  if (store_.payloads().size() == 0) return Address{0};
  constexpr Address kLowest = 1ull << 36, kStep = 1ull << 36;  // where neither heaps nor the kernel's choices are
  const uint64_t length = page_up(store_.payloads().size());
  Address at = kLowest;
  for (;; at += kStep) {
    ASSIGN_OR_RETURN(const auto mapped, mapped_from(pid, at));
    if (!mapped || mapped->start >= at + length) break;
  }
  TRY(calls.map_file(store_.payloads().path(), at, length, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
  return at;
}

Result<std::shared_ptr<Gate>> UnitGates::inherit(const Gate& parent, const Stub& child) const {
  auto gate = std::make_shared<Gate>(*tier_->arena, parent);
  if (!gate->take_slot()) return Error{"no memory for the calls of a forked process"};
  gate->slot()->replay = 1;
  gate->slot()->messages = parent.slot()->messages;
  TRY(child.map_file(child.pid(), gate->slot_memory().path(), gate::kSlot, gate::kSlotSize, PROT_READ | PROT_WRITE,
                     MAP_SHARED, 0));
  gate->slot_memory().close();
  return gate;
}

// Moves a stopped thread from where one state of the tier has its instruction to where another state has it; null:
// there is no tier.
void UnitGates::reseat(const RedrivenThread& thread, const Gate& before, const Gate* after) const {
  user_regs_struct regs;
  if (!get_regs(thread.tid, regs)) return;
  const user_regs_struct stopped = regs;
  before.make_canonical(regs);
  if (after) regs.rip = after->physical(regs.rip);
  if (regs.rip != stopped.rip || regs.rcx != stopped.rcx) redrive::set_regs(thread.tid, regs);
}

std::vector<ProcessSerial> UnitGates::remove(ProcessSerial process) {
  const std::shared_ptr<Gate> gate = shared(process);
  if (!gate) return {};
  const Stub& stub = unit_.stub(process);
  for (const auto& [unused, thread] : unit_.threads()) {
    if (of(thread) == gate.get()) reseat(thread, *gate, nullptr);
  }
  for (const auto& site : gate->sites) stub.memory().write(site.start, site.original.data(), site.original.size());
  for (const auto& area : gate->trampolines) {
    static_cast<void>(stub.unmap(stub.pid(), area.start, kTrampolinesSize));
  }
  static_cast<void>(stub.unmap(stub.pid(), gate::kCode, gate::kEnd - gate::kCode));
  if (gate->messages.start) {
    static_cast<void>(stub.unmap(stub.pid(), gate->messages.start, page_up(store_.payloads().size())));
  }
  std::vector<ProcessSerial> sharing;
  for (const auto& [serial, its] : gates_) {
    if (its == gate) sharing.push_back(serial);
  }
  for (const ProcessSerial serial : sharing) gates_.erase(serial);
  return sharing;
}

std::vector<std::vector<ProcessSerial>> UnitGates::remove_all() {
  std::vector<std::vector<ProcessSerial>> removed;
  while (!gates_.empty()) removed.push_back(remove(gates_.begin()->first));
  return removed;
}

std::vector<ProcessSerial> UnitGates::make_room(const RedrivenThread& thread, const Event& event, Special special) {
  const Gate* const gate = of(thread);
  const bool removed = gate && is_in_the_way(*gate, event, special, unit_.process(thread.process).brk);
  return removed ? remove(thread.process) : std::vector<ProcessSerial>();
}

bool UnitGates::is_in_the_way(const Gate& gate, const Event& event, Special special, Address brk) {
  const auto ranges = changed_memory(event, special, brk);
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const AddressRange& range) { return gate.touches(range.start, range.end); });
}

Result<void> UnitGates::replace(const RedrivenThread& thread, const SitePatch& patch) {
  Gate* const gate = of(thread);
  const Stub& stub = unit_.stub(thread.process);
  if (!gate->trampolines_near(patch.site)) {
    ASSIGN_OR_RETURN(const auto mapped, mapped_ranges(stub.pid()));
    const auto at = Gate::gap_near(mapped, patch.site, kBelow);
    if (!at) return {};
    TRY(stub.map_anonymous(thread.tid, *at, kTrampolinesSize, PROT_READ | PROT_EXEC, MAP_PRIVATE));
    gate->add_trampolines(stub.memory(), *at);
  }
  gate->patch(stub.memory(), {patch});
  for (auto& [serial, other] : unit_.threads()) {
    if (of(other) != gate) continue;
    reseat(other, *gate, gate);
    other.reseated = true;
  }
  return {};
}

bool UnitGates::set_regs(const RedrivenThread& thread, const user_regs_struct& regs) const {
  user_regs_struct physical = regs;
  physical.orig_rax = ~0ull;  // no call continues
  if (const Gate* gate = of(thread)) physical.rip = gate->physical(regs.rip);
  return redrive::set_regs(thread.tid, physical);
}

bool UnitGates::leave(const RedrivenThread& thread, user_regs_struct regs) const {
  regs.rip = tier_->arena->header().leave;
  regs.orig_rax = ~0ull;
  return redrive::set_regs(thread.tid, regs);
}

void UnitGates::enter(RedrivenThread& thread) const {
  const Gate& gate = *of(thread);
  user_regs_struct regs = thread.regs;
  const PatchedSite* site = nullptr;
  if (thread.ahead == ThreadStop::syscall) {
    site = gate.patched(regs.rip - kSyscallSize);
    regs.rax = regs.orig_rax;
  } else if (!thread.ahead && std::exchange(thread.reseated, false) && get_regs(thread.tid, regs)) {
    // Right before a call, which it has not entered, it was sent to where that call stops.
    const auto stands = std::ranges::find(gate.sites, regs.rip, &PatchedSite::stop);
    if (stands != gate.sites.end()) site = &*stands;
  }
  if (!site || site->kind != SiteKind::syscall) return;
  regs.rip = tier_->arena->header().entry;
  regs.rcx = site->stop;
  regs.orig_rax = ~0ull;
  if (!redrive::set_regs(thread.tid, regs)) return;
  thread.stopped_at_syscall = false;
  thread.ahead.reset();
}

}  // namespace redrive
