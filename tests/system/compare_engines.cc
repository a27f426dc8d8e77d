// compare_engines TRACE: restores every image of a trace by CRIU and without it, and compares the mappings, registers
// and pages of both with each other and with the image. Says how many images it has compared, or what differs first.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "checkpoint/address_space.h"
#include "checkpoint/criu_restore.h"
#include "interceptors/trapped_instructions.h"
#include "logstore/trace.h"
#include "supervisor/replay/verify.h"

namespace redrive {
namespace {

// The mappings that a process has besides a stub's own, one a line. Where one ends and the next begins, if both are of
// the same memory, is up to the kernel.
Result<std::vector<std::string>> mappings_of(const Stub& stub) {
  ASSIGN_OR_RETURN(auto mappings, read_mappings(stub.pid()));
  TRY(note_flags(stub.pid(), mappings));
  std::vector<Mapping> joined;
  for (const Mapping& m : mappings) {
    if (m.start < kGateEnd && kGateStart < m.end) continue;
    Mapping* const last = joined.empty() ? nullptr : &joined.back();
    const bool continues = last && last->end == m.start && last->protection == m.protection &&
                           last->shared == m.shared && last->inode == m.inode && !m.is_stack() &&
                           last->fork_advice == m.fork_advice &&
                           (m.inode == 0 || last->offset + last->length() == m.offset);
    if (continues) {
      last->end = m.end;
    } else {
      joined.push_back(m);
    }
  }
  std::vector<std::string> lines;
  for (const Mapping& m : joined) {
    // The objects of the two are not the same.
    const bool shows_object = m.shared && m.name.find("memfd:") != std::string::npos;
    const std::string name = m.inode == 0 ? "" : shows_object ? "an object" : m.name;
    lines.push_back(fmt::format("{:x}-{:x} {} {} {:x} {}{}", m.start, m.end, m.protection,
                                m.shared ? "shared" : "private", m.offset, name, m.is_stack() ? " grows" : ""));
  }
  return lines;
}

struct Engines {
  Result<RestoredUnit> restored(const Trace& trace, const Image& image, const UnitState& state, bool by_criu) {
    std::vector<PageRef> stored;
    for (const Image::Page& page : image.pages) stored.push_back({page.process, page.address});
    const auto read_pages = [&](const FillPages& fill) { return trace.read_pages(image.pages, fill); };
    const auto file_path = [&](uint64_t file) { return trace.file_path(file); };
    return restore(state, read_pages, file_path, {}, by_criu ? criu.get() : nullptr, stored);
  }
  std::unique_ptr<CriuEngine> criu;
};

Result<void> compare_with_image(const Trace& trace, const Image& image, const UnitState& state,
                                const RestoredUnit& unit) {
  for (const ProcessState& process : state.processes) {
    if (process.memory_of) continue;
    const Stub& stub = unit.processes.at(process.process).stub;
    ASSIGN_OR_RETURN(const auto difference, memory_difference(trace, image, state, process, stub, {}));
    if (difference) return Error{fmt::format("the memory at {:#x} is not that of the image", *difference)};
  }
  for (const ThreadState& thread : state.threads) {
    user_regs_struct regs{};
    const pid_t tid = unit.threads.at(thread.thread);
    if (!get_regs(tid, regs) || !same_registers(regs, thread.regs)) {
      return Error{fmt::format("the registers of thread {} are not those of the image", thread.thread)};
    }
    if (!thread.xstate.empty() && !same_xstate(get_xstate(tid), thread.xstate)) {
      return Error{fmt::format("the extended registers of thread {} are not those of the image", thread.thread)};
    }
  }
  return {};
}

Result<void> compare(Engines& engines, const Trace& trace, UnitId unit, IntervalIndex interval) {
  ASSIGN_OR_RETURN(const Image image, trace.image(unit, interval));
  ASSIGN_OR_RETURN(const UnitState state, read_state(image.header, unit, interval));
  std::map<uint32_t, std::vector<std::string>> mappings;
  for (const bool by_criu : {false, true}) {
    ASSIGN_OR_RETURN(const RestoredUnit restored, engines.restored(trace, image, state, by_criu));
    TRY(compare_with_image(trace, image, state, restored));
    for (const auto& [serial, process] : restored.processes) {
      ASSIGN_OR_RETURN(const auto found, mappings_of(process.stub));
      const auto [other, first] = mappings.emplace(serial, found);
      if (first || other->second == found) continue;
      const auto differ = std::mismatch(found.begin(), found.end(), other->second.begin(), other->second.end());
      const auto shown = [](const auto& line, const auto& lines) { return line == lines.end() ? "nothing" : *line; };
      return Error{fmt::format("the mappings differ: {} and by CRIU {}", shown(differ.second, other->second),
                               shown(differ.first, found))};
    }
  }
  return {};
}

Result<size_t> compare_all(const char* directory) {
  ASSIGN_OR_RETURN(const auto trace, Trace::open(directory));
  Engines engines;
  ASSIGN_OR_RETURN(engines.criu, CriuEngine::make());
  trap_own_instructions();
  size_t images = 0;
  for (const auto& unit : trace->units()) {
    for (const auto& interval : trace->intervals(unit.unit)) {
      if (!interval.has_image) continue;
      const auto compared = compare(engines, *trace, unit.unit, interval.interval);
      if (!compared) {
        return Error{fmt::format("image {} of unit {}: {}", interval.interval, unit.unit, compared.error().message)};
      }
      ++images;
    }
  }
  return images;
}

int run(int argc, char** argv) {
  if (argc != 2) return fmt::print(stderr, "usage: compare_engines TRACE\n"), 2;
  const auto images = compare_all(argv[1]);
  if (!images) return fmt::print(stderr, "compare_engines: {}\n", images.error().message), 1;
  fmt::print("{} images\n", *images);
  return 0;
}

}  // namespace
}  // namespace redrive

int main(int argc, char** argv) { return redrive::run(argc, argv); }
