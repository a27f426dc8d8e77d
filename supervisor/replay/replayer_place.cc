// Where a thread was preempted, found again: its registers and all memory of its unit are those of the interval's
// image. Two equal states in one stretch without events are one state: a thread that comes from it to itself does so
// forever.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "supervisor/replay/probe.h"
#include "supervisor/replay/replayer.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

constexpr unsigned kBreakpoints = 200'000;  // that a search passes, 10 us each
constexpr size_t kStackPages = 16;
constexpr unsigned kComparisons = 64;  // of all memory
constexpr size_t kCode = 32;           // bytes that say whether code is what it will be
const std::string kPassedTooOften = fmt::format("the thread came by {} times in another state", kBreakpoints);
constexpr const char* kOverwritten = "the program has overwritten the code that was to stop it there";
constexpr const char* kGone = "the thread has ended";

SearchEnd not_found(const std::string& why) { return NotFound{"the place of preemption was not found again: " + why}; }

}  // namespace

Result<Replayer::Place> Replayer::read_place(IntervalIndex interval) const {
  Place place;
  ASSIGN_OR_RETURN(place.image, trace_.image(what_.unit, interval));
  Decoder header(place.image.header);
  if (decode(header, place.state)) return place;
  return Error{"the image of interval " + std::to_string(interval) + " cannot be understood", Status::damaged};
}

// Where the unit's memory is not that of the place, if it is anywhere: in this process, if there, at the first address.
Result<std::optional<Replayer::OtherMemory>> Replayer::other_memory(const Place& place, ProcessSerial first,
                                                                    const std::vector<AddressRange>& except) const {
  std::optional<OtherMemory> elsewhere;
  for (const auto& process : place.state.processes) {
    const auto found = unit_.processes.find(process.process);
    if (process.process >= place.state.first_joined_process || process.memory_of || found == unit_.processes.end())
      continue;
    if (elsewhere && process.process != first) continue;
    ASSIGN_OR_RETURN(const auto differs,
                     memory_difference(trace_, place.image, place.state, process, found->second.stub, except));
    if (!differs) continue;
    elsewhere = OtherMemory{process.process, *differs};
    if (process.process == first) break;
  }
  return elsewhere;
}

// The place's memory from this page on, up to the first that its image does not hold.
Result<Bytes> Replayer::pages_of(const Place& place, ProcessSerial process, Address first, size_t count) const {
  const Address end = first + count * kPageSize;
  std::vector<Image::Page> pages;
  std::copy_if(place.image.pages.begin(), place.image.pages.end(), std::back_inserter(pages), [&](const auto& page) {
    return page.process == process && page.address >= first && page.address < end;
  });
  size_t held = 0;
  while (held < pages.size() && pages[held].address == first + held * kPageSize) ++held;
  pages.resize(held);
  Bytes bytes(held * kPageSize);
  TRY(trace_.read_pages(pages, [&](std::span<const PageRef> read) -> Result<void> {
    for (const auto& page : read) std::memcpy(bytes.data() + (page.address - first), page.data, kPageSize);
    return {};
  }));
  return bytes;
}

// Runs the thread until it is about to execute the code there, if it has yet to write it: what a probe inserts would be
// overwritten.
Result<SearchEnd> Replayer::run_to_code(Thread& thread, EventIndex index, Address address, const Bytes& code) {
  const Memory& memory = unit_.processes.at(thread.process).stub.memory();
  Bytes now(code.size());
  for (unsigned passed = 0; !code.empty() && memory.read(address, now.data(), now.size()) && now != code; ++passed) {
    if (passed == kBreakpoints) return not_found(kPassedTooOften);
    if (!stop_before(thread.tid, address)) return not_found("no debug register can be used to stop there");
    ASSIGN_OR_RETURN(const StopKind stop, run_to_stop(thread));
    if (stop != StopKind::fault || thread.regs.rip != address) {
      return never_came(thread, index, address, stop);
    }
    constexpr uint64_t kResumeFlag = 0x10000;
    thread.regs.eflags &= ~kResumeFlag;
    if (!stop_before(thread.tid, 0)) return not_found(kGone);
  }
  return SearchEnd(Found{});
}

SearchEnd Replayer::never_came(const Thread& thread, EventIndex index, Address place, StopKind stop) const {
  if (stop == StopKind::overdue) return not_found("the thread was not there within " + patience_.text());
  return difference(thread, index, fmt::format("to come to {:#x}, where it was preempted", place),
                    came_to(thread, stop));
}

// Runs the thread, which stands somewhere behind its last event, to the place where it was preempted: the interval's
// start. What it does there is seen by nobody until it is there. The tier of its unit is removed.
Result<SearchEnd> Replayer::run_to_place(ThreadSerial serial, EventIndex index, IntervalIndex interval) {
  ASSIGN_OR_RETURN(const Place place, read_place(interval));
  const auto saved = std::find_if(place.state.threads.begin(), place.state.threads.end(),
                                  [&](const auto& thread) { return thread.thread == serial; });
  Thread& thread = threads_.at(serial);
  if (saved == place.state.threads.end()) return Error{"an image lacks its thread", Status::damaged};
  while (!gates_.empty()) remove_gate(gates_.begin()->first);
  patience_.begin_search(thread.process, unit_.processes.at(thread.process).stub.cpu_time_ns());
  auto found = find_place(thread, index, place, *saved);
  awaited_ = nullptr;
  patience_.end_search();
  return found;
}

Result<SearchEnd> Replayer::find_place(Thread& thread, EventIndex index, const Place& place, const ThreadState& saved) {
  ASSIGN_OR_RETURN(const auto pending, pending_outputs(place.state, index));
  const ProcessSerial memory = place.state.memory_of(thread.process);
  const auto here = [&](std::vector<AddressRange> except) -> Result<std::optional<OtherMemory>> {
    if (!same_xstate(get_xstate(thread.tid), saved.xstate)) return std::optional(OtherMemory{});
    except.insert(except.end(), pending.begin(), pending.end());
    return other_memory(place, memory, except);
  };
  const Address code_page = saved.regs.rip & ~(kPageSize - 1);
  ASSIGN_OR_RETURN(Bytes code, pages_of(place, memory, code_page, 1));
  code.erase(code.begin(),
             code.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(code.size(), saved.regs.rip - code_page)));
  code.resize(std::min(code.size(), kCode));
  ASSIGN_OR_RETURN(SearchEnd written, run_to_code(thread, index, saved.regs.rip, code));
  if (!std::holds_alternative<Found>(written)) return written;
  user_regs_struct regs = thread.regs;
  regs.orig_rax = saved.regs.orig_rax;
  if (same_registers(regs, saved.regs)) {
    ASSIGN_OR_RETURN(const auto differs, here({}));
    if (!differs) return SearchEnd(Found{});
  }
  const Stub& stub = unit_.processes.at(thread.process).stub;
  ASSIGN_OR_RETURN(Probe probe, Probe::set(stub, thread.tid, saved.regs));
  awaited_ = &probe;
  // Of a recursion the outermost frame that differs keeps most of the wrong ones away.
  const Address stack = saved.regs.rsp & ~uint64_t{7}, stack_page = stack & ~(kPageSize - 1);
  ASSIGN_OR_RETURN(const Bytes frames, pages_of(place, memory, stack_page, kStackPages));
  Bytes now(frames.size());
  const auto outermost = [&]() -> std::optional<Address> {
    if (!stub.memory().read(stack_page, now.data(), now.size())) return std::nullopt;
    for (size_t at = now.size(); at >= stack - stack_page + sizeof(uint64_t); at -= sizeof(uint64_t)) {
      const size_t word = at - sizeof(uint64_t);
      if (std::memcmp(&now[word], &frames[word], sizeof(uint64_t)) != 0) return stack_page + word;
    }
    return std::nullopt;
  };
  const auto require = [&](Address address, const Bytes& page, Address start) {
    uint64_t word = 0;
    if (address - start > page.size() || page.size() - (address - start) < sizeof word) return;
    std::memcpy(&word, &page[address - start], sizeof word);
    probe.require(address, word);
  };
  unsigned passed = 0, compared = 0;
  for (;;) {
    ASSIGN_OR_RETURN(const StopKind stop, run_to_stop(thread));
    const auto at = stop == StopKind::fault ? probe.at(thread.regs) : Probe::Stop::elsewhere;
    if (at == Probe::Stop::elsewhere) {
      if (!probe.intact()) return not_found(kOverwritten);
      return never_came(thread, index, saved.regs.rip, stop);
    }
    if (const auto frame = at == Probe::Stop::wanted ? outermost() : std::nullopt) {
      require(*frame, frames, stack_page);
    } else if (at == Probe::Stop::wanted) {
      ASSIGN_OR_RETURN(const auto differs, here(probe.foreign()));
      if (!differs) break;
      if (++compared == kComparisons) {
        return not_found(fmt::format("all registers were equal {} times, and memory differed", kComparisons));
      }
      if (differs->address && differs->process == memory) {
        const Address word = differs->address & ~uint64_t{7}, page = word & ~(kPageSize - 1);
        ASSIGN_OR_RETURN(const Bytes held, pages_of(place, memory, page, 1));
        require(word, held, page);
      }
    }
    if (++passed == kBreakpoints) return not_found(kPassedTooOften);
    if (!probe.pass(thread.tid, thread.regs)) return not_found(kGone);
  }
  thread.regs.orig_rax = ~0ull;
  TRY(probe.remove(thread.tid, thread.regs));
  return SearchEnd(Found{});
}

// The thread goes on from where it was preempted. A replay that begins there finds it there; one that comes by has to
// look for the place if anybody else ran meanwhile.
Result<Step> Replayer::replay_preemption(Thread& thread, EventIndex index, const Event& event) {
  const auto& intervals = trace_.intervals(what_.unit);
  if (index == intervals.at(what_.start).first_event) {
    if (thread.regs.rip == event.ip && preserved_registers_hash(thread.regs) == event.regs_hash) {
      return Step::as_recorded();
    }
    return diverged(thread, index, fmt::format("to be at {:#x}", event.ip), fmt::format("{:#x}", thread.regs.rip));
  }
  if (static_cast<Preempted>(event.args[0]) == Preempted::checkpoint) return Step::as_recorded();
  const auto interval =
      std::find_if(intervals.begin(), intervals.end(), [&](const IntervalRecord& i) { return i.first_event == index; });
  if (interval == intervals.end() || !interval->has_image) {
    return Error{fmt::format("unit {} was preempted before event {}, and the checkpoint that says where is not stored",
                             what_.unit, index)};
  }
  ASSIGN_OR_RETURN(const SearchEnd search, run_to_place(event.thread, index, interval->interval));
  if (const auto* difference = std::get_if<Difference>(&search)) return Step::diverged(*difference);
  if (const auto* not_found = std::get_if<NotFound>(&search)) {
    return Error{fmt::format("unit {} was preempted before event {}: {}", what_.unit, index, not_found->why)};
  }
  TRY(map_gates());
  return Step::as_recorded();
}

// None: the recording ends before it.
Result<std::optional<EventKind>> Replayer::kind_of_event(EventIndex index) const {
  std::optional<EventKind> kind;
  if (index >= trace_.event_count(what_.unit)) return kind;
  TRY(trace_.for_each_event(what_.unit, index, index + 1, [&](EventIndex, const Event& event) {
    kind = event.kind;
    return true;
  }));
  return kind;
}

}  // namespace redrive
