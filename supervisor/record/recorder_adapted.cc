// Files in which the kernel says what programs are not to see: that a recorder traces them and filters their calls,
// where it lets them run, and how many processors there are if they are to see another number. A program that opens one
// by its name gets a memory object (memfd_create(2)) that holds what it would find without a recorder, as of then.
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "base/text.h"
#include "supervisor/record/recorder.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

constexpr char kProcessors[] = "/sys/devices/system/cpu/";

// The contents of a file in procfs or sysfs, by the path that a process has for it; empty if it is no such file.
std::string kernel_file(pid_t tid, const std::string& path) {
  const Fd file(open(fmt::format("/proc/{}/root{}", tid, path).c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  struct statfs system {};
  if (!file || fstatfs(file.get(), &system) != 0) return {};
  if (system.f_type != PROC_SUPER_MAGIC && system.f_type != SYSFS_MAGIC) return {};
  std::string text;
  char block[16384];
  for (ssize_t n = 0; (n = read(file.get(), block, sizeof block)) > 0;) text.append(block, static_cast<size_t>(n));
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The value in a line of a status file; empty if it has no such line.
std::string field(const std::string& status, const std::string& name) {
  const size_t at = ("\n" + status).find("\n" + name + ":\t");
  if (at == std::string::npos) return {};
  const size_t start = at + name.size() + 2;
  return status.substr(start, status.find('\n', start) - start);
}

// As the kernel writes them: "0-2,5", and "ff,ffffffff" with as many digits as processors need that it knows.
std::string list_of(const cpu_set_t& set) {
  std::string text;
  for (size_t i = 0; i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &set)) continue;
    const size_t first = i;
    while (i + 1 < CPU_SETSIZE && CPU_ISSET(i + 1, &set)) ++i;
    text += fmt::format("{}{}", text.empty() ? "" : ",", first);
    if (i > first) text += fmt::format("-{}", i);
  }
  return text;
}

std::string mask_of(const cpu_set_t& set, size_t digits) {
  std::string text;
  for (size_t digit = digits; digit-- > 0;) {
    unsigned value = 0;
    for (size_t bit = 0; bit < 4; ++bit) value |= (CPU_ISSET(digit * 4 + bit, &set) ? 1U : 0U) << bit;
    text += fmt::format("{:x}", value);
    if (digit && digit % 8 == 0) text += ',';
  }
  return text;
}

size_t digits_for(const cpu_set_t& set, const std::string& mask) {
  auto digits = static_cast<size_t>(std::count_if(mask.begin(), mask.end(), [](char c) { return c != ','; }));
  for (size_t i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) digits = std::max(digits, i / 4 + 1);
  }
  return digits;
}

// proc_pid_status(5), of a thread that is recorded.
std::string adapted_status(const Thread& thread, const std::string& status, const std::string& own) {
  const Confinement& its = thread.confinement;
  std::string text;
  for (const std::string& line : lines_of(status)) {
    const std::string name = line.substr(0, line.find(':'));
    std::optional<std::string> value;
    if (name == "TracerPid") value = "0";
    if (name == "NoNewPrivs") value = its.no_new_privileges() ? "1" : "0";
    if (name == "Seccomp") value = its.strict() ? "1" : its.filters() ? "2" : field(own, name);
    if (name == "Seccomp_filters") value = std::to_string(parse_number(field(own, name)).value_or(0) + its.filters());
    if (name == "Cpus_allowed") {
      value = mask_of(thread.processors, digits_for(thread.processors, field(status, name)));
    }
    if (name == "Cpus_allowed_list") value = list_of(thread.processors);
    text += value ? name + ":\t" + *value : line;
    text += '\n';
  }
  return text;
}

// proc_stat(5): a line for each processor; what there are not have done nothing.
std::string adapted_stat(const std::string& stat, size_t processors) {
  std::string text;
  size_t next = 0;
  const auto add_others = [&] {
    for (; next < processors; ++next) text += fmt::format("cpu{} 0 0 0 0 0 0 0 0 0 0\n", next);
  };
  for (const std::string& line : lines_of(stat)) {
    const bool one = line.starts_with("cpu") && line.size() > 3 && line[3] != ' ';
    if (one && next++ >= processors) continue;
    if (!one && !line.starts_with("cpu")) add_others();
    text += line + "\n";
  }
  return text;
}

// proc_cpuinfo(5): a paragraph for each processor.
std::string adapted_cpuinfo(const std::string& cpuinfo, size_t processors) {
  std::vector<std::string> paragraphs;
  for (size_t at = 0; at < cpuinfo.size();) {
    const size_t end = std::min(cpuinfo.find("\n\n", at), cpuinfo.size());
    paragraphs.push_back(cpuinfo.substr(at, end - at));
    at = end + 2;
  }
  std::string text;
  for (size_t i = 0; i < processors && !paragraphs.empty(); ++i) {
    for (const std::string& line : lines_of(paragraphs[i % paragraphs.size()])) {
      text += line.starts_with("processor") ? fmt::format("processor\t: {}\n", i) : line + "\n";
    }
    text += "\n";
  }
  return text;
}

}  // namespace

// The thread that a path such as /proc/self/task/12/status is of; null if it is of none that is recorded. `path`
// becomes the name that the file has for everybody.
const Thread* Recorder::thread_of_status(const Thread& caller, std::string& path) {
  std::vector<std::string> names;
  std::istringstream stream(path + '\n');  // so that a name behind the last slash is there, though it be empty
  for (std::string name; std::getline(stream, name, '/');) names.push_back(name);
  const bool of_task = names.size() == 6 && names[3] == "task";
  const bool of_process = names.size() == 4;
  if ((!of_process && !of_task) || !names[0].empty() || names[1] != "proc" || names.back() != "status\n")
    return nullptr;
  if (names[2] == "self") names[2] = std::to_string(caller.process->pid);
  if (names[2] == "thread-self") names[2] = std::to_string(caller.tid);
  path = fmt::format("/proc/{}/{}status", names[2], of_task ? fmt::format("task/{}/", names[4]) : "");
  const auto number = parse_number(of_task ? names[4] : names[2]);
  return number ? find(static_cast<pid_t>(*number)) : nullptr;
}

// What the thread is to find in a file; none if that is what the kernel says.
std::optional<std::string> Recorder::adapted_file(const Thread& thread, const std::string& path) {
  const bool of_processors = path.starts_with(kProcessors) || path == "/proc/stat" || path == "/proc/cpuinfo";
  if (!of_processors || !limits_.processors_seen) {
    std::string name = path;
    const Thread* const of = thread_of_status(thread, name);
    // Elsewhere numbers mean others.
    if (!of || pid_in_own_namespace(thread.tid) != thread.tid) return std::nullopt;
    const std::string status = kernel_file(thread.tid, name);
    if (status.empty()) return std::nullopt;
    return adapted_status(*of, status, kernel_file(getpid(), fmt::format("/proc/{}/status", getpid())));
  }
  const std::string name = path.starts_with(kProcessors) ? path.substr(sizeof kProcessors - 1) : "";
  const std::string text = kernel_file(thread.tid, path);
  if (text.empty()) return std::nullopt;
  if (path == "/proc/stat") return adapted_stat(text, limits_.processors_seen);
  if (path == "/proc/cpuinfo") return adapted_cpuinfo(text, limits_.processors_seen);
  if (name == "online" || name == "present" || name == "possible") return list_of(processors_seen()) + "\n";
  return std::nullopt;
}

// The processors that there are, as programs see it.
cpu_set_t Recorder::processors_seen() const {
  if (!limits_.processors_seen) return placement_.seen();
  cpu_set_t seen;
  CPU_ZERO(&seen);
  for (size_t i = 0; i < limits_.processors_seen; ++i) CPU_SET(i, &seen);
  return seen;
}

// At the entry of an open: the kernel is to make an object in its place.
void Recorder::open_adapted(Thread& thread) {
  const size_t first = thread.row->number == SYS_open ? 0 : 1;  // openat(2): behind the directory
  const uint64_t flags = thread.args[first + 1];
  if (thread.row->new_descriptor != NewDescriptor::file || flags & (O_ACCMODE | O_PATH | O_DIRECTORY)) return;
  thread.adapted = adapted_file(thread, thread.process->memory.string(thread.args[first]));
  if (!thread.adapted) return;
  user_regs_struct regs = thread.entry;
  regs.orig_rax = SYS_memfd_create;
  regs.rdi = thread.args[first];  // its name
  regs.rsi = flags & O_CLOEXEC ? MFD_CLOEXEC : 0;
  if (!set_regs(thread, regs)) thread.adapted.reset();
}

// At its exit, where it is `stopped`: fills the object, and gives the registers back their values.
void Recorder::fill_adapted(Thread& thread, const user_regs_struct& stopped, user_regs_struct& regs) {
  const std::string text = *std::exchange(thread.adapted, std::nullopt);
  regs.orig_rax = thread.entry.orig_rax;
  regs.rdi = thread.entry.rdi;
  regs.rsi = thread.entry.rsi;
  if (is_error(static_cast<int64_t>(regs.rax))) {
    set_regs(thread, regs);
    return;
  }
  const Fd object(open(descriptor_path(thread.process->pid, regs.rax).c_str(), O_WRONLY | O_CLOEXEC));
  const ssize_t size = object ? write(object.get(), text.data(), text.size()) : -1;
  if (size != static_cast<ssize_t>(text.size())) {
    add_unsure(*thread.process->unit, "a file that it opened could not be adapted");
  }
  open_for_reading(thread, stopped);
  set_regs(thread, regs);
}

// The object's descriptor, which the thread has just got, becomes one that is open for reading only, as it was asked
// for. Where there is no procfs it stays as it is.
void Recorder::open_for_reading(Thread& thread, const user_regs_struct& stopped) {
  constexpr uint64_t kRedZone = 128;
  const Memory& memory = thread.process->memory;
  const std::string path = fmt::format("/proc/self/fd/{}", stopped.rax);
  const Address at = stopped.rsp - kRedZone - path.size() - 1;
  Bytes covered(path.size() + 1);
  if (!memory.read(at, covered.data(), covered.size()) || !memory.write(at, path.c_str(), covered.size())) return;
  const auto call = [&](long number, std::initializer_list<uint64_t> args) {
    const auto made = calls_.call_at(caller_of(thread), stopped.rip - kSyscallSize, stopped, number, args);
    return made ? *made : int64_t{-1};
  };
  const auto closed_at_exec = thread.args[thread.row->number == SYS_open ? 1 : 2] & O_CLOEXEC;
  const int64_t opened = call(SYS_open, {at, O_RDONLY, 0});
  if (!is_error(opened)) {
    call(SYS_dup3, {static_cast<uint64_t>(opened), stopped.rax, closed_at_exec});
    call(SYS_close, {static_cast<uint64_t>(opened)});
  }
  memory.write(at, covered.data(), covered.size());
}

// The thread has moved one to other processors, of those that it sees. What the kernel says of who may and who is there
// counts, and not what it says of processors.
int64_t Recorder::choose_of_seen(Thread& thread, int64_t result) {
  Thread* const moved = find(tid_named(thread, thread.args[0]));
  if (!moved || (result != 0 && result != -EINVAL)) return result;
  cpu_set_t wanted, chosen;
  CPU_ZERO(&wanted);
  const size_t size = std::min<size_t>(thread.args[1], sizeof wanted);
  if (!thread.process->memory.read(thread.args[2], &wanted, size)) return result;
  const cpu_set_t seen = processors_seen();
  CPU_AND(&chosen, &wanted, &seen);
  if (CPU_COUNT(&chosen) == 0) return -EINVAL;
  moved->processors = chosen;
  placement_.send(moved->tid, moved->process->unit->place.away);
  return 0;
}

}  // namespace redrive
