#include "supervisor/cli/core_export.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "checkpoint/auxiliary_vector.h"
#include "checkpoint/loaded_objects.h"
#include "interceptors/trapped_instructions.h"

namespace redrive {
namespace {

constexpr size_t kAtOnce = 1 << 20;
// The kernel lets arguments and environment take 6 MiB (bprm_set_stack_limits(), fs/exec.c).
constexpr uint64_t kStackEnd = 8 << 20;

// The siginfo of the frame that the kernel made on the handler's stack: after its return address and the context.
std::optional<siginfo_t> signal_info_of(const Event& event) {
  constexpr size_t kContextSize = 304;  // of the kernel's ucontext (asm-generic/ucontext.h)
  constexpr size_t kAt = sizeof(uint64_t) + kContextSize;
  siginfo_t info;
  if (event.writes.empty() || event.writes[0].data.size() < kAt + sizeof info) return std::nullopt;
  std::memcpy(&info, event.writes[0].data.data() + kAt, sizeof info);
  return info.si_signo == event.number ? std::optional(info) : std::nullopt;
}

// The numbers of threads as their program knows them: what the calls that made them have returned, since it was
// executed.
Result<std::map<ThreadSerial, int32_t>> thread_numbers(const Trace& trace, const CoreExport::Place& place,
                                                       std::set<ThreadSerial> wanted) {
  const auto& intervals = trace.intervals(place.unit);
  IntervalIndex start = place.interval;
  while (start > 0 && intervals.at(start).kind != CheckpointKind::exec) --start;
  std::map<ThreadSerial, int32_t> numbers;
  TRY(trace.for_each_event(place.unit, intervals.at(start).first_event, place.event,
                           [&](EventIndex, const Event& event) {
                             if (event.result > 0 && wanted.erase(event.child_thread)) {
                               numbers[event.child_thread] = static_cast<int32_t>(event.result);
                             }
                             return !wanted.empty();
                           }));
  return numbers;
}

Result<bool> begins_elf_file(OpenCopies& copies, const Mapping& mapping) {
  if (mapping.offset != 0) return false;
  uint8_t magic[SELFMAG];
  TRY(copies.read(mapping, mapping.start, magic));
  return std::memcmp(magic, ELFMAG, SELFMAG) == 0;
}

Bytes auxiliary_vector_of(const RecordedMemory& memory) {
  const auto& mappings = memory.mappings();
  for (auto mapping = mappings.rbegin(); mapping != mappings.rend(); ++mapping) {
    if (!mapping->is_stack()) continue;
    Bytes stack(std::min(mapping->length(), kStackEnd));
    const auto read = memory.read(mapping->end - stack.size(), stack);
    if (!read || !*read) continue;
    if (Bytes found = find_auxiliary_vector(stack); !found.empty()) return found;
  }
  return {};
}

// Code that the recorder had replaced, because the processor does not trap it (trapped_instructions.h), as the file has
// it: `code` is what the program had mapped at the address.
Result<void> put_back_trapped(OpenCopies& copies, const Mapping& mapping, Address address, Bytes& code) {
  const size_t before = std::min<uint64_t>(kLongestTrapped - 1, address - mapping.start);
  Bytes original(before + code.size() + kLongestTrapped - 1);
  TRY(copies.read(mapping, address - before, original));
  redrive::put_back_trapped(original, before, code);
  return {};
}

// A name of a unit as a part of a file's name.
std::string file_name(std::string name) {
  constexpr std::string_view kPlain = "._+-";
  for (char& c : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) || kPlain.find(c) != kPlain.npos;
    if (!plain) c = '_';
  }
  return name;
}

std::string path_of(const Trace& trace, const Mapping& mapping) {
  if (mapping.name.starts_with('/') || !mapping.file) return mapping.name;
  const auto file = trace.files().find(mapping.file);
  return file == trace.files().end() ? mapping.name : file->second.path;
}

// The number of the process that has forked the unit's; 0: not known.
int32_t parent_of(const Trace& trace, UnitId unit) {
  const auto record_of = [&](UnitId wanted) {
    const auto& units = trace.units();
    return std::find_if(units.begin(), units.end(), [&](const UnitRecord& each) { return each.unit == wanted; });
  };
  const auto its = record_of(unit);
  const auto parent = its == trace.units().end() ? its : record_of(its->parent.unit);
  return parent == trace.units().end() ? 0 : parent->pid;
}

// The mapped files, and the names under which the loader has opened them.
NamedFiles files_of(const std::vector<CoreMapping>& mappings, const std::vector<LoadedObject>& objects) {
  NamedFiles named;
  for (const CoreMapping& each : mappings) {
    if (each.mapping.file) named.files.emplace(each.mapping.name, each.mapping.file);
  }
  for (const LoadedObject& object : objects) {
    const auto shown = std::find_if(mappings.begin(), mappings.end(), [&](const CoreMapping& each) {
      return each.mapping.start <= object.dynamic && object.dynamic < each.mapping.end;
    });
    if (shown != mappings.end() && shown->mapping.file) named.links.emplace(object.name, shown->mapping.name);
  }
  return named;
}

}  // namespace

Result<std::unique_ptr<CoreExport>> CoreExport::begin(const Trace& trace, const std::string& directory,
                                                      bool file_pages) {
  if (mkdir(directory.c_str(), 0777) != 0) return errno_error("cannot create " + directory);
  return std::unique_ptr<CoreExport>(new CoreExport(trace, directory, file_pages));
}

CoreExport::~CoreExport() {
  std::error_code ignored;
  if (!done_) std::filesystem::remove_all(directory_, ignored);
}

Result<void> CoreExport::finish() {
  TRY(used_copies_are_good(trace_));
  done_ = true;
  return {};
}

// Which thread makes the next event, and the signal that it is.
Result<CoreExport::NextEvent> CoreExport::next_event(const Place& place) const {
  NextEvent next;
  TRY(trace_.for_each_event(place.unit, place.event, place.event + 1, [&](EventIndex, const Event& event) {
    next.thread = event.thread;
    if (event.kind == EventKind::signal) {
      next.signal = event.number;
      next.signal_info = signal_info_of(event);
      const bool known = next.signal_info || !place.fault || place.fault->si_signo != event.number;
      if (!known) next.signal_info = place.fault;
    }
    return true;
  }));
  return next;
}

Result<std::vector<CoreThread>> CoreExport::threads_of(const Place& place, const UnitState& state,
                                                       const ProcessState& process,
                                                       std::optional<ThreadSerial> first) const {
  std::set<ThreadSerial> born;  // by calls; the first of all was not
  for (const ThreadState& thread : state.threads) {
    if (thread.process == process.process && thread.thread > 0) born.insert(thread.thread);
  }
  std::map<ThreadSerial, int32_t> numbers;
  if (!born.empty()) {
    ASSIGN_OR_RETURN(numbers, thread_numbers(trace_, place, born));
  }
  std::set<int32_t> taken;
  for (const auto& [serial, number] : numbers) taken.insert(number);
  std::vector<CoreThread> threads;
  for (const ThreadState& thread : state.threads) {
    if (thread.process != process.process) continue;
    auto known = numbers.find(thread.thread);
    int32_t number = known == numbers.end() ? process.pid : known->second;
    while (known == numbers.end() && !taken.insert(number).second) ++number;
    const auto at = first == thread.thread ? threads.begin() : threads.end();
    threads.insert(at, CoreThread{number, thread.regs, thread.xstate});
  }
  return threads;
}

Result<std::vector<CoreMapping>> CoreExport::mappings_of(const RecordedMemory& memory) {
  std::vector<CoreMapping> mappings;
  for (const Mapping& mapping : memory.mappings()) {
    if (mapping.file && !trace_.files().contains(mapping.file)) {
      return Error{"the image shows a file that the trace does not have", Status::damaged};
    }
    CoreMapping each{mapping, {}};
    each.mapping.name = path_of(trace_, mapping);
    if (mapping.file && file_pages_) {
      ASSIGN_OR_RETURN(const uint64_t shown, copies_.extent(mapping));
      if (shown > 0) each.held = {{mapping.start, page_up(shown) / kPageSize}};
    } else {
      ASSIGN_OR_RETURN(each.held, memory.own_pages(mapping));
      const bool has_first = !each.held.empty() && each.held[0].start == mapping.start;
      if (mapping.file && !has_first) {
        ASSIGN_OR_RETURN(const bool begins, begins_elf_file(copies_, mapping));
        if (begins) each.held.insert(each.held.begin(), {mapping.start, 1});
      }
      each.held = without_small_gaps(each.held);
    }
    mappings.push_back(std::move(each));
  }
  return mappings;
}

Result<void> CoreExport::write(CoreFile& core, const std::vector<CoreMapping>& mappings, const RecordedMemory& memory) {
  Bytes buffer;
  for (const auto& [mapping, held] : mappings) {
    if (!mapping.file) continue;
    ASSIGN_OR_RETURN(const int copy, copies_.get(mapping.file));
    for (const PageRun& run : held) {
      const uint64_t offset = mapping.offset + (run.start - mapping.start);
      for (const FileRange& range : data_ranges(copy, offset, offset + run.pages * kPageSize)) {
        for (uint64_t at = range.start; at < range.end; at += buffer.size()) {
          buffer.resize(std::min<uint64_t>(kAtOnce, range.end - at));
          const Address address = mapping.start + (at - mapping.offset);
          TRY(copies_.read(mapping, address, buffer));
          TRY(core.write(address, buffer));
        }
      }
    }
  }
  return memory.visit_own([&](Address address, std::span<const uint8_t> pages) -> Result<void> {
    const auto its = std::upper_bound(mappings.begin(), mappings.end(), address,
                                      [](Address at, const CoreMapping& each) { return at < each.mapping.end; });
    const bool is_code = its != mappings.end() && its->mapping.file && (its->mapping.protection & PROT_EXEC);
    if (!is_code) return core.write(address, pages);
    buffer.assign(pages.begin(), pages.end());
    TRY(put_back_trapped(copies_, its->mapping, address, buffer));
    return core.write(address, buffer);
  });
}

Result<void> CoreExport::add_process(const Place& place, const CoreProcess& process, const RecordedMemory& memory) {
  ASSIGN_OR_RETURN(const auto mappings, mappings_of(memory));
  const ReadMemory read = [&](Address from, std::span<uint8_t> to) {
    const auto got = memory.read(from, to);
    return got && *got;
  };
  ASSIGN_OR_RETURN(const std::string root,
                   tree_.add(files_of(mappings, loaded_objects(read, process.auxiliary_vector))));
  Core made{place, process.pid, process.threads.size(), 0, {}, root, {}};
  made.file = fmt::format("{}/core.{}.{}", directory_, file_name(trace_.unit_name(place.unit)), process.pid);
  const auto has_name = [&](const Core& other) { return other.file == made.file; };
  // Processes of different namespaces may have the same number.
  if (std::any_of(cores_.begin(), cores_.end(), has_name)) made.file += fmt::format(".{}", cores_.size());
  ASSIGN_OR_RETURN(CoreFile core, CoreFile::create(made.file, process, mappings));
  TRY(write(core, mappings, memory));
  ASSIGN_OR_RETURN(made.bytes, core.size_on_disk());
  const auto headers = auxiliary_value(process.auxiliary_vector, AT_PHDR);
  for (const CoreMapping& each : mappings) {
    const bool has = headers && each.mapping.start <= *headers && *headers < each.mapping.end;
    if (has && each.mapping.file) made.program = FileTree::path_in(root, each.mapping.name);
  }
  cores_.push_back(std::move(made));
  return {};
}

Result<void> CoreExport::add(const Place& place, const UnitState& state, const MemoryOf& memory) {
  ASSIGN_OR_RETURN(const NextEvent next, next_event(place));
  for (const ProcessState& its : state.processes) {
    CoreProcess process;
    process.pid = its.pid;
    process.command = trace_.intervals(place.unit).at(place.interval).command;
    process.parent = parent_of(trace_, place.unit);
    ASSIGN_OR_RETURN(process.threads, threads_of(place, state, its, next.thread));
    if (process.threads.empty()) continue;
    const bool gets_signal = std::any_of(state.threads.begin(), state.threads.end(), [&](const ThreadState& thread) {
      return next.thread == thread.thread && thread.process == its.process;
    });
    if (gets_signal) process.signal = next.signal, process.signal_info = next.signal_info;
    const uint32_t owner = its.memory_of.value_or(its.process);
    const auto has_memory = [&](const ProcessState& each) { return each.process == owner && !each.memory_of; };
    const auto lender = std::find_if(state.processes.begin(), state.processes.end(), has_memory);
    if (lender == state.processes.end()) return Error{"the image holds a process without memory", Status::damaged};
    ASSIGN_OR_RETURN(const auto its_memory, memory(*lender));
    process.auxiliary_vector = auxiliary_vector_of(*its_memory);
    TRY(add_process(place, process, *its_memory));
  }
  return {};
}

}  // namespace redrive
