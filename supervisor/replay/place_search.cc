#include "supervisor/replay/place_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/thread_clock.h"
#include "supervisor/replay/probe.h"
#include "supervisor/replay/repeated_store.h"
#include "supervisor/replay/undetermined_memory.h"
#include "supervisor/replay/verify.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

// Where no jump to a comparison fits, each pass stops. A loop that passes often is not worth waiting for. This is CPU
// time, so that what is found does not depend on what else the machine does.
constexpr uint64_t kLongestPassingNs = 2'000'000'000;
constexpr size_t kStackPages = 16;
constexpr unsigned kComparisons = 64;  // of all memory
constexpr size_t kCode = 32;           // bytes that say whether code is what it will be
constexpr const char* kOverwritten = "the program has overwritten the code that was to stop it there";
constexpr const char* kGone = "the thread has ended";

SearchEnd not_found(const std::string& why) { return NotFound{"the place of preemption was not found again: " + why}; }

// Counts how often a thread of a process has come by.
class Passes {
 public:
  explicit Passes(const Stub& stub) : stub_(stub) {}
  // Whether it has done so often enough.
  bool pass() { return ++count_ % 64 == 0 && used_ns() - began_ns_ > kLongestPassingNs; }
  SearchEnd too_often() const {
    return not_found(fmt::format("the thread came by {} times in another state, and stopped each time", count_));
  }

 private:
  // CPU time of the process and of this thread, which runs it.
  uint64_t used_ns() const { return stub_.cpu_time_ns() + thread_cpu_ns(); }

  const Stub& stub_;
  const uint64_t began_ns_ = used_ns();
  unsigned count_ = 0;
};

// The state of a unit at an interval's start.
struct Place {
  Image image;
  UnitState state;
};

class PlaceSearch {
 public:
  // `saved`: the thread there.
  PlaceSearch(const Redriving& redriving, RedrivenThread& thread, EventIndex index, const Place& place,
              const ThreadState& saved)
      : redriving_(redriving), thread_(thread), index_(index), place_(place), saved_(saved) {}

  Result<SearchEnd> find();

 private:
  struct OtherMemory {
    ProcessSerial process = 0;
    Address address = 0;
  };
  Result<std::optional<OtherMemory>> other_memory(ProcessSerial first, const std::vector<AddressRange>& except) const;
  Result<Bytes> pages_of(ProcessSerial process, Address first, size_t count) const;
  Result<SearchEnd> run_to_code(Address address, const Bytes& code);
  bool store_as_saved(const RepeatedStore& store) const;
  void store_rest(const RepeatedStore& store) const;
  SearchEnd never_came(Address place, ThreadStop stop) const;

  const Redriving& redriving_;
  RedrivenThread& thread_;
  const EventIndex index_;
  const Place& place_;
  const ThreadState& saved_;
};

// Where the unit's memory differs from that of the place, if it does: at the first address, and in process `first` if
// it differs there.
Result<std::optional<PlaceSearch::OtherMemory>> PlaceSearch::other_memory(
    ProcessSerial first, const std::vector<AddressRange>& except) const {
  const auto& processes = redriving_.unit.processes();
  std::optional<OtherMemory> elsewhere;
  for (const auto& process : place_.state.processes) {
    const auto found = processes.find(process.process);
    if (process.process >= place_.state.first_joined_process || process.memory_of || found == processes.end()) continue;
    if (elsewhere && process.process != first) continue;
    ASSIGN_OR_RETURN(const auto differs, memory_difference(redriving_.trace, place_.image, place_.state, process,
                                                           found->second.stub, except));
    if (!differs) continue;
    elsewhere = OtherMemory{process.process, *differs};
    if (process.process == first) break;
  }
  return elsewhere;
}

// The place's memory from this page on, up to the first that its image does not hold.
Result<Bytes> PlaceSearch::pages_of(ProcessSerial process, Address first, size_t count) const {
  const Address end = first + count * kPageSize;
  std::vector<Image::Page> pages;
  std::copy_if(place_.image.pages.begin(), place_.image.pages.end(), std::back_inserter(pages), [&](const auto& page) {
    return page.process == process && page.address >= first && page.address < end;
  });
  size_t held = 0;
  while (held < pages.size() && pages[held].address == first + held * kPageSize) ++held;
  pages.resize(held);
  Bytes bytes(held * kPageSize);
  TRY(redriving_.trace.read_pages(pages, [&](std::span<const PageRef> read) -> Result<void> {
    for (const auto& page : read) std::memcpy(bytes.data() + (page.address - first), page.data, kPageSize);
    return {};
  }));
  return bytes;
}

// Runs the thread until it is about to execute the code there, if it has yet to write that code: what a probe inserts
// would be overwritten.
Result<SearchEnd> PlaceSearch::run_to_code(Address address, const Bytes& code) {
  const Memory& memory = redriving_.unit.memory(thread_);
  Bytes now(code.size());
  Passes passes(redriving_.unit.stub(thread_.process));
  while (!code.empty() && memory.read(address, now.data(), now.size()) && now != code) {
    if (passes.pass()) return passes.too_often();
    if (!stop_before(thread_.tid, address)) return not_found("no debug register can be used to stop there");
    const ThreadStop stop = redriving_.runner.run(thread_);
    if (stop != ThreadStop::fault || thread_.regs.rip != address) {
      return never_came(address, stop);
    }
    constexpr uint64_t kResumeFlag = 0x10000;
    thread_.regs.eflags &= ~kResumeFlag;
    if (!stop_before(thread_.tid, 0)) return not_found(kGone);
  }
  return SearchEnd(Found{});
}

// The thread, which is at the beginning of that instruction, gets as far with it as the saved one, if that comes from
// there. If it is elsewhere after all, it executes the rest.
bool PlaceSearch::store_as_saved(const RepeatedStore& store) const {
  const auto rounds = store.rounds(thread_.regs, saved_.regs);
  return rounds && store.advance(redriving_.unit.memory(thread_), thread_.regs, *rounds);
}

// A step would be one round, after which it is there again.
void PlaceSearch::store_rest(const RepeatedStore& store) const {
  static_cast<void>(store.advance(redriving_.unit.memory(thread_), thread_.regs, thread_.regs.rcx));
}

SearchEnd PlaceSearch::never_came(Address place, ThreadStop stop) const {
  if (stop == ThreadStop::overdue) return not_found("the thread was not there within " + redriving_.runner.patience());
  return difference(thread_, index_, fmt::format("to come to {:#x}, where it was preempted", place),
                    redriving_.runner.came_to(thread_, stop));
}

Result<SearchEnd> PlaceSearch::find() {
  ASSIGN_OR_RETURN(const auto undetermined, undetermined_memory(redriving_, place_.state, index_));
  const ProcessSerial memory = place_.state.memory_of(thread_.process);
  const auto same_extended = [&] { return same_xstate(get_xstate(thread_.tid), saved_.xstate); };
  const auto here = [&](std::vector<AddressRange> except) {
    except.insert(except.end(), undetermined.begin(), undetermined.end());
    return other_memory(memory, except);
  };
  const Address code_page = saved_.regs.rip & ~(kPageSize - 1);
  ASSIGN_OR_RETURN(Bytes code, pages_of(memory, code_page, 1));
  code.erase(code.begin(),
             code.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(code.size(), saved_.regs.rip - code_page)));
  code.resize(std::min(code.size(), kCode));
  ASSIGN_OR_RETURN(SearchEnd written, run_to_code(saved_.regs.rip, code));
  if (!std::holds_alternative<Found>(written)) return written;
  user_regs_struct regs = thread_.regs;
  regs.orig_rax = saved_.regs.orig_rax;
  if (same_registers(regs, saved_.regs) && same_extended()) {
    ASSIGN_OR_RETURN(const auto differs, here({}));
    if (!differs) return SearchEnd(Found{});
  }
  const Stub& stub = redriving_.unit.stub(thread_.process);
  // In the middle of this instruction, if it is one.
  const auto store = RepeatedStore::at(stub.memory(), saved_.regs);
  auto set = Probe::set(stub, thread_.tid, saved_.regs, store.has_value());
  if (!set) return not_found(set.error().message);
  Probe& probe = *set;
  // In a recursion, the outermost frame that differs rules out most of the wrong places.
  const Address stack = saved_.regs.rsp & ~uint64_t{7}, stack_page = stack & ~(kPageSize - 1);
  ASSIGN_OR_RETURN(const Bytes frames, pages_of(memory, stack_page, kStackPages));
  Bytes now(frames.size());
  const std::vector<AddressRange> foreign = probe.foreign();
  const auto is_foreign = [&](Address word) {
    return std::ranges::any_of(
        foreign, [&](const AddressRange& range) { return range.start < word + sizeof(uint64_t) && word < range.end; });
  };
  const auto outermost = [&]() -> std::optional<Address> {
    if (!stub.memory().read(stack_page, now.data(), now.size())) return std::nullopt;
    for (size_t at = now.size(); at >= stack - stack_page + sizeof(uint64_t); at -= sizeof(uint64_t)) {
      const size_t word = at - sizeof(uint64_t);
      const bool differs = std::memcmp(&now[word], &frames[word], sizeof(uint64_t)) != 0;
      if (differs && !is_foreign(stack_page + word)) return stack_page + word;
    }
    return std::nullopt;
  };
  AddressRange stored{};  // by that instruction, between its beginning and the place
  const auto require = [&](Address address, const Bytes& page, Address start) {
    uint64_t word = 0;
    if (stored.start < address + sizeof word && address < stored.end) return;  // it has yet to store there
    if (is_foreign(address) || address - start > page.size() || page.size() - (address - start) < sizeof word) return;
    std::memcpy(&word, &page[address - start], sizeof word);
    probe.require(address, word);
  };
  Passes passes(stub);
  unsigned compared = 0;
  for (;;) {
    const ThreadStop stop = redriving_.runner.run(thread_, &probe);
    auto at = stop == ThreadStop::fault ? probe.at(thread_.regs) : Probe::Stop::elsewhere;
    if (at == Probe::Stop::elsewhere) {
      if (!probe.intact()) return not_found(kOverwritten);
      return never_came(saved_.regs.rip, stop);
    }
    if (store && at == Probe::Stop::wanted) {
      stored = {thread_.regs.rdi, saved_.regs.rdi};
      if (!store_as_saved(*store)) at = Probe::Stop::other_registers;
    }
    if (at == Probe::Stop::wanted && !same_extended()) at = Probe::Stop::other_registers;
    if (const auto frame = at == Probe::Stop::wanted ? outermost() : std::nullopt) {
      require(*frame, frames, stack_page);
    } else if (at == Probe::Stop::wanted) {
      ASSIGN_OR_RETURN(const auto differs, here(foreign));
      if (!differs) break;
      if (++compared == kComparisons) {
        return not_found(fmt::format("all registers were equal {} times, and memory differed", kComparisons));
      }
      auto told_by = differs;
      if (stored.start <= differs->address && differs->address < stored.end) {
        std::vector<AddressRange> except = foreign;
        except.push_back(stored);
        ASSIGN_OR_RETURN(told_by, here(except));
      }
      if (told_by && told_by->process == memory) {
        const Address word = told_by->address & ~uint64_t{7}, page = word & ~(kPageSize - 1);
        ASSIGN_OR_RETURN(const Bytes held, pages_of(memory, page, 1));
        require(word, held, page);
      }
    }
    if (passes.pass()) return passes.too_often();
    if (store && !probe.compares()) store_rest(*store);
    if (!probe.pass(thread_.tid, thread_.regs)) return not_found(kGone);
  }
  thread_.regs.orig_rax = ~0ull;
  TRY(probe.remove(thread_.tid, thread_.regs));
  return SearchEnd(Found{});
}

Result<Place> read_place(const Redriving& redriving, IntervalIndex interval) {
  Place place;
  ASSIGN_OR_RETURN(place.image, redriving.trace.image(redriving.what.unit, interval));
  Decoder header(place.image.header);
  if (decode(header, place.state)) return place;
  return Error{fmt::format("the image of interval {} cannot be understood", interval), Status::damaged};
}

}  // namespace

std::optional<IntervalIndex> interval_begun_by(const Trace& trace, EventRef at, const Event& event) {
  const auto why = static_cast<Preempted>(event.args[0]);
  if (event.kind != EventKind::preemption || why == Preempted::stepped || why == Preempted::waiting) return {};
  const auto& intervals = trace.intervals(at.unit);
  const auto last = std::find_if(intervals.rbegin(), intervals.rend(),
                                 [&](const IntervalRecord& each) { return each.first_event == at.event; });
  return last == intervals.rend() ? std::nullopt : std::optional(last->interval);
}

Result<SearchEnd> run_to_place(const Redriving& redriving, ThreadSerial thread, EventIndex index,
                               IntervalIndex interval) {
  ASSIGN_OR_RETURN(const Place place, read_place(redriving, interval));
  const auto saved = std::find_if(place.state.threads.begin(), place.state.threads.end(),
                                  [&](const auto& one) { return one.thread == thread; });
  RedrivenThread& its = redriving.unit.thread(thread);
  if (saved == place.state.threads.end()) return Error{"an image lacks its thread", Status::damaged};
  redriving.gates.remove_all();
  redriving.runner.begin_search(its);
  auto end = PlaceSearch(redriving, its, index, place, *saved).find();
  redriving.runner.end_search();
  return end;
}

}  // namespace redrive
