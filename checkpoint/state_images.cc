// The encoding of a state: encode(), decode() and read_state() of unit_state.h.
#include <fmt/format.h>
#include <sys/mman.h>

#include <climits>
#include <cstring>
#include <set>

#include "checkpoint/criu_files.h"
#include "checkpoint/register_images.h"
#include "checkpoint/state_images.pb.h"
#include "checkpoint/unit_state.h"

namespace redrive {
namespace {

// Before version 12, a header began with the number of a thread, which is smaller.
constexpr uint64_t kMessages = uint64_t{1} << 32;

using namespace criu_value;
constexpr char kStackName[] = "[stack]", kHeapName[] = "[heap]";

uint32_t status_of(const Mapping& mapping) {
  uint32_t status = kRegular;
  if (mapping.name == kStackName) status |= kStack;
  if (mapping.name == kHeapName) status |= kHeap;
  if (mapping.file) return status | (mapping.shared ? kFileShared : kFilePrivate);
  return status | (mapping.shared ? kAnonymousShared : kAnonymousPrivate);
}

std::string name_by_status(uint32_t status) { return status & kStack ? kStackName : status & kHeap ? kHeapName : ""; }

// The files that are mapped, by their ids.
class Files {
 public:
  explicit Files(images::State& state) : state_(state) {
    for (const auto& file : state.files()) names_.emplace(file.id(), file.name());
  }
  void add(uint64_t id, const std::string& name) {
    if (!names_.emplace(id, name).second) return;
    auto& file = *state_.add_files();
    file.set_id(static_cast<uint32_t>(id));
    file.set_flags(0);
    file.set_pos(0);
    auto& owner = *file.mutable_fown();
    owner.set_uid(0);
    owner.set_euid(0);
    owner.set_signum(0);
    owner.set_pid_type(0);
    owner.set_pid(0);
    file.set_name(name);
  }
  std::string name_of(uint64_t id) const {
    const auto found = names_.find(id);
    return found == names_.end() ? "" : found->second;
  }

 private:
  images::State& state_;
  std::map<uint64_t, std::string> names_;
};

void write_mapping(const Mapping& mapping, Files& files, criu::vma_entry& vma, images::Area& area) {
  const bool by_file = mapping.file && mapping.file <= UINT32_MAX;
  const uint32_t status = status_of(mapping);
  vma.set_start(mapping.start);
  vma.set_end(mapping.end);
  vma.set_pgoff(mapping.offset);
  vma.set_shmid(by_file ? mapping.file : mapping.shared_object);
  vma.set_prot(static_cast<uint32_t>(mapping.protection));
  vma.set_flags(static_cast<uint32_t>((mapping.shared ? MAP_SHARED : MAP_PRIVATE) | (by_file ? 0 : MAP_ANONYMOUS) |
                                      (mapping.is_stack() ? MAP_GROWSDOWN : 0)));
  vma.set_status(status);
  vma.set_fd(-1);
  if (mapping.fork_advice) vma.set_madv(mapping.fork_advice);
  if (by_file) files.add(mapping.file, mapping.name);
  if (mapping.shared_object) area.set_object(mapping.shared_object);
  if (mapping.object_size) area.set_object_size(*mapping.object_size);
  const std::string known = by_file ? files.name_of(mapping.file) : name_by_status(status);
  if (mapping.name != known) area.set_name(mapping.name);
}

bool read_mapping(const criu::vma_entry& vma, const images::Area& area, const Files& files, Mapping& mapping) {
  const bool by_file = vma.status() & (kFilePrivate | kFileShared);
  mapping.start = vma.start();
  mapping.end = vma.end();
  mapping.protection = static_cast<int>(vma.prot());
  mapping.shared = (vma.flags() & MAP_TYPE) == MAP_SHARED;
  mapping.offset = vma.pgoff();
  mapping.file = by_file ? vma.shmid() : 0;
  for (const int advice : kForkAdvice) mapping.fork_advice |= vma.madv() & (uint64_t{1} << advice);
  mapping.shared_object = area.object();
  if (area.has_object_size()) mapping.object_size = area.object_size();
  mapping.name = area.has_name() ? area.name() : by_file ? files.name_of(vma.shmid()) : name_by_status(vma.status());
  return mapping.start <= mapping.end && mapping.start % kPageSize == 0 && mapping.end % kPageSize == 0 &&
         mapping.object_size.value_or(0) >> 62 == 0;
}

void write_ids(const ProcessState& process, criu::task_kobj_ids_entry& ids) {
  ids.set_vm_id(process.memory_of.value_or(process.process));
  ids.set_files_id(process.process);
  ids.set_fs_id(process.process);
  ids.set_sighand_id(process.process);
}

void write_memory(const ProcessState& process, Files& files, images::Process& out) {
  auto& mm = *out.mutable_mm();
  const auto stack = std::find_if(process.mappings.begin(), process.mappings.end(),
                                  [](const Mapping& mapping) { return mapping.is_stack(); });
  const auto heap = std::find_if(process.mappings.begin(), process.mappings.end(),
                                 [](const Mapping& mapping) { return mapping.name == kHeapName; });
  mm.set_mm_start_code(0);
  mm.set_mm_end_code(0);
  mm.set_mm_start_data(0);
  mm.set_mm_end_data(0);
  mm.set_mm_start_stack(stack == process.mappings.end() ? 0 : stack->end);
  mm.set_mm_start_brk(heap == process.mappings.end() ? process.brk : heap->start);
  mm.set_mm_brk(process.brk);
  mm.set_mm_arg_start(0);
  mm.set_mm_arg_end(0);
  mm.set_mm_env_start(0);
  mm.set_mm_env_end(0);
  mm.set_exe_file_id(0);
  for (const Mapping& mapping : process.mappings) write_mapping(mapping, files, *mm.add_vmas(), *out.add_areas());
}

void write_process(const ProcessState& process, Files& files, images::Process& out) {
  auto& tree = *out.mutable_tree();
  tree.set_pid(static_cast<uint32_t>(process.pid));
  tree.set_ppid(0);
  tree.set_pgid(0);
  tree.set_sid(0);
  write_ids(process, *out.mutable_ids());
  if (!process.memory_of) write_memory(process, files, out);
  out.set_serial(process.process);
  out.set_stack_limit(process.stack_limit);
  for (const auto& [entry, descriptor] : process.descriptors) out.add_descriptors(&descriptor, sizeof descriptor);
  for (const auto& [name, content] : process.files) {
    auto& file = *out.add_files();
    file.set_name(name);
    file.set_content(content);
  }
}

bool read_process(const images::Process& in, const Files& files, ProcessState& process) {
  process.process = in.serial();
  process.pid = static_cast<int32_t>(in.tree().pid());
  process.stack_limit = in.stack_limit();
  if (!in.has_mm()) process.memory_of = in.ids().vm_id();
  process.brk = in.mm().mm_brk();
  if (in.mm().vmas_size() != in.areas_size()) return false;
  for (int i = 0; i < in.areas_size(); ++i) {
    if (!read_mapping(in.mm().vmas(i), in.areas(i), files, process.mappings.emplace_back())) return false;
  }
  for (const std::string& bytes : in.descriptors()) {
    LocalDescriptor descriptor;
    if (bytes.size() != sizeof descriptor) return false;
    std::memcpy(&descriptor, bytes.data(), sizeof descriptor);
    process.descriptors[descriptor.entry] = descriptor;
  }
  for (const auto& file : in.files()) process.files.push_back({file.name(), file.content()});
  return true;
}

void write_thread(const ThreadState& thread, const XstateLayout& layout, images::Thread& out) {
  auto& core = *out.mutable_core();
  core.set_mtype(kX86_64);
  core.mutable_thread_info()->set_clear_tid_addr(0);
  add_registers(thread.regs, *core.mutable_thread_info()->mutable_gpregs());
  layout.write(thread.xstate, out);
  out.set_serial(thread.thread);
  out.set_process(thread.process);
  if (thread.in_syscall) out.set_in_syscall(true);
  if (thread.read_implies_exec) out.set_read_implies_exec(true);
}

bool read_thread(images::Thread& in, const XstateLayout& layout, ThreadState& thread) {
  thread.thread = in.serial();
  thread.process = in.process();
  thread.in_syscall = in.in_syscall();
  thread.read_implies_exec = in.read_implies_exec();
  thread.regs = registers_of(in.core().thread_info().gpregs());
  return in.core().mtype() == kX86_64 && in.core().has_thread_info() && layout.read(in, thread.xstate);
}

void write_inventory(criu::inventory_entry& inventory) {
  inventory.set_img_version(kImageVersion);
  inventory.set_fdinfo_per_id(true);
  inventory.set_ns_per_id(true);
}

}  // namespace

void encode(const UnitState& state, Encoder& out) {
  images::State messages;
  write_inventory(*messages.mutable_inventory());
  Files files(messages);
  for (const ProcessState& process : state.processes) write_process(process, files, *messages.add_processes());
  const XstateLayout layout = XstateLayout::of_processor();
  layout.add_to(messages);
  for (const ThreadState& thread : state.threads) write_thread(thread, layout, *messages.add_threads());
  for (const UnitState::ZeroPage& page : state.zero_pages) {
    auto& made = *messages.add_zero_pages();
    made.set_process(page.process);
    made.set_address(page.address);
  }
  messages.set_trigger(state.trigger);
  messages.set_next_thread(state.next_thread);
  messages.set_next_process(state.next_process);
  if (state.first_joined_thread != ~0u) messages.set_first_joined_thread(state.first_joined_thread);
  if (state.first_joined_process != ~0u) messages.set_first_joined_process(state.first_joined_process);
  const std::string bytes = messages.SerializeAsString();
  out.u(kMessages);
  out.raw(bytes.data(), bytes.size());
}

namespace {

// Bytes of all threads of a unit. A message of a few bytes may claim so many for each that memory ends.
constexpr size_t kMostRegisters = 256 << 20;

bool decode_messages(std::span<const uint8_t> bytes, UnitState& state) {
  images::State messages;
  const bool parsed =
      bytes.size() <= INT_MAX && messages.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()));
  if (!parsed || !messages.IsInitialized()) return false;
  const Files files(messages);
  for (const images::Process& process : messages.processes()) {
    if (!read_process(process, files, state.processes.emplace_back())) return false;
  }
  const XstateLayout layout = XstateLayout::of(messages);
  size_t registers = 0;
  for (images::Thread& thread : *messages.mutable_threads()) {
    if (!read_thread(thread, layout, state.threads.emplace_back())) return false;
    registers += state.threads.back().xstate.size();
    if (registers > kMostRegisters) return false;
  }
  for (const images::ZeroPage& page : messages.zero_pages()) {
    state.zero_pages.push_back({page.process(), page.address()});
  }
  state.trigger = messages.trigger();
  state.next_thread = messages.next_thread();
  state.next_process = messages.next_process();
  if (messages.has_first_joined_thread()) state.first_joined_thread = messages.first_joined_thread();
  if (messages.has_first_joined_process()) state.first_joined_process = messages.first_joined_process();
  return true;
}

// Up to version 11.
bool decode_fields(uint64_t first, Decoder& in, UnitState& state) {
  constexpr uint64_t kSharedAndSized = 2;  // instead of `shared`: the size of the object follows, since version 5
  state.trigger = static_cast<uint32_t>(first);
  state.next_thread = static_cast<uint32_t>(in.u());
  state.next_process = static_cast<uint32_t>(in.u());
  state.first_joined_thread = static_cast<uint32_t>(in.u());
  state.first_joined_process = static_cast<uint32_t>(in.u());
  state.processes.resize(in.count(4));
  for (auto& process : state.processes) {
    process.process = static_cast<uint32_t>(in.u());
    process.pid = static_cast<int32_t>(in.u());
    process.brk = in.u();
    process.mappings.resize(in.count(8));
    for (auto& m : process.mappings) {
      m.start = in.u();
      m.end = in.u();
      m.protection = static_cast<int>(in.u());
      const uint64_t shared = in.u();
      m.shared = shared != 0;
      if (shared == kSharedAndSized) m.object_size = in.u();
      if (shared > kSharedAndSized || m.object_size.value_or(0) >> 62) in.fail();
      m.offset = in.u();
      m.file = in.u();
      m.shared_object = in.u();
      m.name = in.str();
      if (m.end < m.start || m.start % kPageSize || m.end % kPageSize || m.file > UINT32_MAX) in.fail();
    }
  }
  state.zero_pages.resize(in.count(2));
  for (auto& page : state.zero_pages) {
    page.process = static_cast<uint32_t>(in.u());
    page.address = in.u();
  }
  state.threads.resize(in.count(sizeof(user_regs_struct)));
  for (auto& thread : state.threads) {
    thread.thread = static_cast<uint32_t>(in.u());
    thread.process = static_cast<uint32_t>(in.u());
    thread.in_syscall = in.u() != 0;
    const auto regs = in.take(sizeof thread.regs);
    if (regs.size() == sizeof thread.regs) std::memcpy(&thread.regs, regs.data(), sizeof thread.regs);
    const auto xstate = in.bytes();
    thread.xstate.assign(xstate.begin(), xstate.end());
  }
  const bool goes_on = !in.at_end();  // present since version 5
  for (auto& process : state.processes) {
    if (!goes_on) break;
    process.stack_limit = in.u();
    if (const uint64_t owner = in.u()) {
      process.memory_of = static_cast<uint32_t>(owner - 1);
      process.brk = 0;
      if (!process.mappings.empty()) in.fail();
    }
  }
  const bool has_descriptors = !in.at_end();  // present since version 7
  for (auto& process : state.processes) {
    if (!has_descriptors) break;
    for (size_t left = in.count(sizeof(LocalDescriptor)); left > 0; --left) {
      LocalDescriptor descriptor;
      const auto held = in.take(sizeof descriptor);
      if (held.size() != sizeof descriptor) break;
      std::memcpy(&descriptor, held.data(), sizeof descriptor);
      process.descriptors[descriptor.entry] = descriptor;
    }
  }
  return in.ok();
}

}  // namespace

bool decode(Decoder& in, UnitState& state) {
  state = {};
  const uint64_t first = in.u();
  return first == kMessages ? decode_messages(in.take(in.left()), state) : decode_fields(first, in, state);
}

Result<UnitState> read_state(std::span<const uint8_t> header, uint32_t unit, uint32_t interval) {
  UnitState state;
  Decoder in(header);
  if (decode(in, state)) return state;
  return Error{fmt::format("the image of interval {} of unit {} cannot be understood", interval, unit),
               Status::damaged};
}

}  // namespace redrive
