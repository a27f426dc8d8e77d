// Reads rows against a tracee's arguments and memory: what a call reads, what it may write, what it wrote.
#include <asm/unistd.h>
#include <linux/ethtool.h>
#include <linux/filter.h>
#include <linux/ioctl.h>
#include <net/if.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>

#include "base/procfs.h"
#include "interceptors/socket_options.h"
#include "interceptors/syscall_table.h"

namespace redrive {
namespace {

constexpr uint64_t kMaxTransfer = 0x7ffff000;  // MAX_RW_COUNT: no call moves more
constexpr uint64_t kMaxVector = 1024;          // UIO_MAXIOV
constexpr uint64_t kMaxName = 128;             // sizeof(sockaddr_storage)
constexpr uint64_t kMaxStrings = 1 << 16;
constexpr uint64_t kMaxString = 32 * kPageSize;  // MAX_ARG_STRLEN
constexpr uint64_t kMaxSemaphores = 32000;       // SEMMSL

// The indexes of a message's outputs in EntrySizes::fixed_outputs.
enum MessageOutput { kName, kControl, kNameLength, kControlLength, kFlags, kLength, kMessageOutputs };

using Args = std::span<const uint64_t, 6>;

bool is_output(ArgKind kind) { return kind == ArgKind::out || kind == ArgKind::in_out; }

void add(std::vector<Span>& spans, Address address, uint64_t length, bool payload = false) {
  if (address == 0) return;
  length = std::min(length, kMaxTransfer);
  for (uint64_t at = 0; at < length; at += kMaxSpan) {
    spans.push_back({address + at, std::min(length - at, kMaxSpan), payload});
  }
}

// Adds `header` bytes that are not payload, and the rest.
void add(std::vector<Span>& spans, Address address, uint64_t length, const Arg& arg) {
  const uint64_t header = std::min<uint64_t>(arg.extent.header, length);
  if (!arg.payload || header == 0) return add(spans, address, length, arg.payload);
  if (address == 0) return;
  add(spans, address, header);
  add(spans, address + header, length - header, true);
}

uint64_t times(uint64_t count, uint64_t size) { return count > kMaxTransfer / size ? kMaxTransfer : count * size; }

uint32_t u32_at(const Memory& memory, Address address) {
  uint32_t value = 0;
  return address && memory.get(address, value) ? value : 0;
}

// How much of a span, from its start, can be read. The first page of what the kernel did write can be.
uint64_t readable(const Memory& memory, Address address, uint64_t length, bool first_page_is) {
  const Address end = address + length;
  Address at = first_page_is ? address / kPageSize * kPageSize + kPageSize : address;
  for (uint8_t byte; at < end; at = at / kPageSize * kPageSize + kPageSize) {
    if (!memory.get(at, byte)) return at > address ? at - address : 0;
  }
  return length;
}

// The length in bytes of the option that getsockopt(2) is asked for.
uint64_t option_length(const Extent& extent, Args args, const Memory& memory) {
  return u32_at(memory, args[extent.value]) * option_unit(args[1], args[2]);
}

uint64_t semaphores(uint64_t id, pid_t pid) {
  // What is not known is the largest possible number; what cannot be read is cut off.
  if (foreign_ipc_namespace(pid)) return kMaxSemaphores;
  semid_ds set{};
  union {
    int value;
    semid_ds* set;
  } in{.set = &set};
  return semctl(static_cast<int>(id), 0, IPC_STAT, in) == 0 ? set.sem_nsems : kMaxSemaphores;
}

// How many bytes the call reads or may write at argument `index`, according to its entry.
uint64_t capacity(const SyscallRow& row, Args args, int index, const Memory& memory) {
  const Extent& extent = row.args[index].extent;
  uint64_t bytes = 0;
  switch (extent.kind) {
    case ExtentKind::none:
      return 0;
    case ExtentKind::fixed:
      bytes = extent.value;
      break;
    case ExtentKind::arg: {
      const uint64_t count = args[extent.value];
      bytes = times(count / extent.divisor + (count % extent.divisor != 0), extent.scale);
      break;
    }
    case ExtentKind::result:
      bytes = times(args[extent.cap_arg], extent.scale);
      break;
    case ExtentKind::pointee_u32:
      bytes = times(u32_at(memory, args[extent.value]), extent.scale);
      break;
    case ExtentKind::option:
      bytes = option_length(extent, args, memory);
      break;
    case ExtentKind::length_of:
      bytes = args[extent.value] ? sizeof(uint32_t) : 0;
      break;
    case ExtentKind::self_u32:
      bytes =
          extent.cap_arg >= 0 ? args[extent.cap_arg] : times(u32_at(memory, args[index] + extent.value), extent.scale);
      bytes = std::max<uint64_t>(bytes, sizeof(uint32_t));
      break;
    case ExtentKind::c_string:
      bytes = extent.value;
      break;
    case ExtentKind::ioc_size:
      bytes = _IOC_SIZE(args[extent.value]);
      break;
    case ExtentKind::semaphores:
      bytes = 2 * semaphores(args[extent.value], memory.pid());
      break;
  }
  return std::min(bytes, kMaxTransfer) + extent.header;
}

// The size of a string with its NUL, at most `limit`; 0 if nothing can be read.
uint64_t string_size(const Memory& memory, Address address, uint64_t limit) {
  char first;
  if (address == 0 || !memory.get(address, first)) return 0;
  return std::min<uint64_t>(memory.string(address, limit).size() + 1, limit);
}

std::vector<iovec> read_iovecs(const Memory& memory, Address address, uint64_t count) {
  if (address == 0 || count > kMaxVector) return {};
  std::vector<iovec> vectors(count);
  if (!memory.read(address, vectors.data(), count * sizeof(iovec))) return {};
  uint64_t left = kMaxTransfer;
  for (iovec& vector : vectors) {
    if (!vector.iov_base) vector.iov_len = 0;
    vector.iov_len = std::min<uint64_t>(vector.iov_len, left);
    left -= vector.iov_len;
  }
  return vectors;
}

uint64_t vector_count(const SyscallRow& row, Args args, int index) {
  const Extent& extent = row.args[index].extent;
  return extent.kind == ExtentKind::fixed ? extent.value : args[index + 1];
}

// The headers of a message call, with their addresses.
struct Message {
  Address address;
  mmsghdr header;
};

std::vector<Message> read_messages(const SyscallRow& row, Args args, int index, const Memory& memory) {
  const ArgKind kind = row.args[index].kind;
  const bool many = kind == ArgKind::mmsghdr_in || kind == ArgKind::mmsghdr_out;
  const uint64_t count = many ? std::min(args[index + 1] & 0xffffffff, kMaxVector) : 1;
  std::vector<mmsghdr> headers(count);
  const size_t stride = many ? sizeof(mmsghdr) : sizeof(msghdr);
  const size_t got = args[index] ? memory.read_some(args[index], headers.data(), count * stride) / stride : 0;
  std::vector<Message> messages;
  for (uint64_t i = 0; i < got; ++i) messages.push_back({args[index] + i * stride, headers[i]});
  return messages;
}

// ---- Inputs

void add_vector_inputs(std::vector<Span>& spans, Address address, uint64_t count, bool buffers, bool payload,
                       const Memory& memory) {
  const std::vector<iovec> vectors = read_iovecs(memory, address, count);
  add(spans, address, vectors.size() * sizeof(iovec));
  if (!buffers) return;
  for (const iovec& vector : vectors) add(spans, reinterpret_cast<Address>(vector.iov_base), vector.iov_len, payload);
}

void add_message_inputs(std::vector<Span>& spans, const SyscallRow& row, Args args, int index, const Memory& memory) {
  const Arg& arg = row.args[index];
  const bool sent = arg.kind == ArgKind::msghdr_in || arg.kind == ArgKind::mmsghdr_in;
  for (const auto& [address, header] : read_messages(row, args, index, memory)) {
    const msghdr& message = header.msg_hdr;
    add(spans, address, sizeof(msghdr));
    if (sent)
      add(spans, reinterpret_cast<Address>(message.msg_name), std::min<uint64_t>(message.msg_namelen, kMaxName));
    add_vector_inputs(spans, reinterpret_cast<Address>(message.msg_iov), message.msg_iovlen, sent, arg.payload, memory);
    if (sent) add(spans, reinterpret_cast<Address>(message.msg_control), message.msg_controllen);
  }
}

void add_string_array(std::vector<Span>& spans, Address address, const Memory& memory) {
  if (address == 0) return;
  std::vector<Address> strings;
  Address string = 1;
  while (string && strings.size() < kMaxStrings && memory.get(address + strings.size() * sizeof string, string)) {
    strings.push_back(string);
  }
  add(spans, address, strings.size() * sizeof string);
  for (const Address each : strings) add(spans, each, string_size(memory, each, kMaxString));
}

// ---- Commands of SIOCETHTOOL

Address ethtool_data(Address request, const Memory& memory) {
  Address data = 0;
  memory.get(request + offsetof(ifreq, ifr_data), data);
  return data;
}

// The structure of a command, which is read and written. Its length is 0 if it is not known, as for structures whose
// length the driver chooses.
Span ethtool_command(Address request, const Memory& memory) {
  const Address at = ethtool_data(request, memory);
  const auto length = [&]() -> uint64_t {
    switch (u32_at(memory, at)) {
      case ETHTOOL_GSET:
      case ETHTOOL_SSET:
        return sizeof(ethtool_cmd);
      case ETHTOOL_GDRVINFO:
        return sizeof(ethtool_drvinfo);
      case ETHTOOL_GWOL:
      case ETHTOOL_SWOL:
        return sizeof(ethtool_wolinfo);
      case ETHTOOL_GMSGLVL:
      case ETHTOOL_SMSGLVL:
      case ETHTOOL_NWAY_RST:
      case ETHTOOL_GLINK:
      case ETHTOOL_GRXCSUM:
      case ETHTOOL_SRXCSUM:
      case ETHTOOL_GTXCSUM:
      case ETHTOOL_STXCSUM:
      case ETHTOOL_GSG:
      case ETHTOOL_SSG:
      case ETHTOOL_GTSO:
      case ETHTOOL_STSO:
      case ETHTOOL_GUFO:
      case ETHTOOL_SUFO:
      case ETHTOOL_GGSO:
      case ETHTOOL_SGSO:
      case ETHTOOL_GGRO:
      case ETHTOOL_SGRO:
      case ETHTOOL_GFLAGS:
      case ETHTOOL_SFLAGS:
      case ETHTOOL_GPFLAGS:
      case ETHTOOL_SPFLAGS:
        return sizeof(ethtool_value);
      case ETHTOOL_GCOALESCE:
      case ETHTOOL_SCOALESCE:
        return sizeof(ethtool_coalesce);
      case ETHTOOL_GRINGPARAM:
      case ETHTOOL_SRINGPARAM:
        return sizeof(ethtool_ringparam);
      case ETHTOOL_GPAUSEPARAM:
      case ETHTOOL_SPAUSEPARAM:
        return sizeof(ethtool_pauseparam);
      case ETHTOOL_GCHANNELS:
      case ETHTOOL_SCHANNELS:
        return sizeof(ethtool_channels);
      case ETHTOOL_GET_TS_INFO:
        return sizeof(ethtool_ts_info);
      case ETHTOOL_GEEE:
      case ETHTOOL_SEEE:
        return sizeof(ethtool_eee);
      case ETHTOOL_GMODULEINFO:
        return sizeof(ethtool_modinfo);
      case ETHTOOL_GPERMADDR:
        return sizeof(ethtool_perm_addr) + u32_at(memory, at + offsetof(ethtool_perm_addr, size));
      case ETHTOOL_GFEATURES:
        return sizeof(ethtool_gfeatures) +
               times(u32_at(memory, at + offsetof(ethtool_gfeatures, size)), sizeof(ethtool_get_features_block));
      case ETHTOOL_GSSET_INFO: {
        uint64_t sets = 0;
        memory.get(at + offsetof(ethtool_sset_info, sset_mask), sets);
        return sizeof(ethtool_sset_info) + static_cast<uint64_t>(std::popcount(sets)) * sizeof(uint32_t);
      }
      case ETHTOOL_GLINKSETTINGS:
      case ETHTOOL_SLINKSETTINGS: {
        // If this is not the driver's number of words, the kernel answers with the right one, and no words follow.
        int8_t words = 0;
        memory.get(at + offsetof(ethtool_link_settings, link_mode_masks_nwords), words);
        return sizeof(ethtool_link_settings) + static_cast<uint64_t>(std::max<int>(words, 0)) * 3 * sizeof(uint32_t);
      }
      default:
        return 0;
    }
  }();
  return {at, length, false};
}

// Whether a process serves the files of file systems of this type, which may have a subtype (fuse.sshfs).
bool is_served(std::string_view type) {
  type = type.substr(0, type.find('.'));
  return type == "fuse" || type == "fuseblk";
}

void add_input(std::vector<Span>& spans, const SyscallRow& row, Args args, int index, const Memory& memory) {
  const Arg& arg = row.args[index];
  switch (arg.kind) {
    case ArgKind::none:
    case ArgKind::val:
    case ArgKind::pointer:
    case ArgKind::fd:
    case ArgKind::out:
      return;
    case ArgKind::path:
    case ArgKind::filesystem:
      return add(spans, args[index], string_size(memory, args[index], kPageSize));
    case ArgKind::string_array:
      return add_string_array(spans, args[index], memory);
    case ArgKind::in:
    case ArgKind::in_out: {
      const uint64_t size = capacity(row, args, index, memory);
      const bool string = arg.extent.kind == ExtentKind::c_string;
      return add(spans, args[index], string ? string_size(memory, args[index], size) : size, arg);
    }
    case ArgKind::iovec_in:
    case ArgKind::iovec_out:
      return add_vector_inputs(spans, args[index], vector_count(row, args, index), arg.kind == ArgKind::iovec_in,
                               arg.payload, memory);
    case ArgKind::msghdr_in:
    case ArgKind::msghdr_out:
    case ArgKind::mmsghdr_in:
    case ArgKind::mmsghdr_out:
      return add_message_inputs(spans, row, args, index, memory);
    case ArgKind::ifconf:
      return add(spans, args[index], 16);
    case ArgKind::ethtool: {
      const Span command = ethtool_command(args[index], memory);
      add(spans, args[index], sizeof(ifreq));
      return add(spans, command.address, command.length);
    }
    case ArgKind::filter: {
      sock_fprog program{};
      add(spans, args[index], sizeof program);
      if (!memory.get(args[index], program)) return;
      return add(spans, reinterpret_cast<Address>(program.filter), program.len * sizeof(sock_filter));
    }
    case ArgKind::watched:
      if (_IOC_DIR(args[arg.extent.value]) & _IOC_WRITE) {
        add(spans, args[index], capacity(row, args, index, memory));
      }
      return;
  }
}

// ---- Entry

void add_buffers(EntrySizes& entry, Address address, uint64_t count, bool payload, const Memory& memory) {
  const std::vector<iovec> vectors = read_iovecs(memory, address, count);
  for (const iovec& vector : vectors) {
    entry.buffers.push_back({reinterpret_cast<Address>(vector.iov_base), vector.iov_len, payload});
  }
  entry.buffer_counts.push_back(static_cast<uint32_t>(vectors.size()));
}

void add_messages(EntrySizes& entry, const SyscallRow& row, Args args, int index, const Memory& memory) {
  const ArgKind kind = row.args[index].kind;
  const bool many = kind != ArgKind::msghdr_out;
  for (const auto& [address, header] : read_messages(row, args, index, memory)) {
    const msghdr& message = header.msg_hdr;
    Span made[kMessageOutputs] = {};
    if (kind != ArgKind::mmsghdr_in) {
      const uint64_t name_length = message.msg_name ? std::min<uint64_t>(message.msg_namelen, kMaxName) : 0;
      const uint64_t control_length = message.msg_control ? std::min<uint64_t>(message.msg_controllen, kMaxSpan) : 0;
      made[kName] = {reinterpret_cast<Address>(message.msg_name), name_length};
      made[kControl] = {reinterpret_cast<Address>(message.msg_control), control_length};
      made[kNameLength] = {address + offsetof(msghdr, msg_namelen), sizeof message.msg_namelen};
      made[kControlLength] = {address + offsetof(msghdr, msg_controllen), sizeof message.msg_controllen};
      made[kFlags] = {address + offsetof(msghdr, msg_flags), sizeof message.msg_flags};
      add_buffers(entry, reinterpret_cast<Address>(message.msg_iov), message.msg_iovlen, true, memory);
    }
    if (many) made[kLength] = {address + offsetof(mmsghdr, msg_len), sizeof header.msg_len};
    entry.fixed_outputs.insert(entry.fixed_outputs.end(), made, made + kMessageOutputs);
  }
}

Span ifconf_buffer(Address request, const Memory& memory) {
  Address buffer = 0;
  memory.get(request + offsetof(::ifconf, ifc_buf), buffer);
  return {buffer, u32_at(memory, request), false};
}

// Reads what a watched argument may change: some memory from its own address on, and from each pointer in its
// structure. What is written elsewhere is missed, and this is not reported.
void watch(EntrySizes& entry, Address structure, uint64_t size, const Memory& memory) {
  constexpr uint64_t kWatched = 64 << 10;  // from each address on
  constexpr uint64_t kStructure = 512;     // pointers that lie further on are not looked at
  constexpr uint64_t kUnknown = 128;       // the same, if the request does not say how long the structure is
  constexpr size_t kPointers = 16;
  std::vector<uint64_t> words(std::min(size ? size : kUnknown, kStructure) / sizeof(uint64_t));
  words.resize(memory.read_some(structure, words.data(), words.size() * sizeof(uint64_t)) / sizeof(uint64_t));
  std::erase_if(words, [&](Address word) {
    uint8_t byte;
    return !memory.get(word, byte);
  });
  if (words.size() > kPointers) words.resize(kPointers);
  words.push_back(structure);
  std::ranges::sort(words);
  for (const Address from : words) {
    if (entry.watched.empty() || from > entry.watched.back().end()) entry.watched.push_back({from, {}});
    Stretch& last = entry.watched.back();
    if (from + kWatched > last.end()) memory.append_some(last.end(), from + kWatched - last.end(), last.bytes);
    if (last.bytes.empty()) entry.watched.pop_back();
  }
}

// ---- Exit

// What is no longer as it was at entry. Changes with little between them become one.
void add_changes(std::vector<Span>& spans, const EntrySizes& entry, const Memory& memory) {
  constexpr ptrdiff_t kBetween = 32;
  for (const Stretch& before : entry.watched) {
    Bytes now;
    memory.append_some(before.start, before.bytes.size(), now);
    auto start = now.begin(), end = start;  // of what has changed
    for (auto at = now.begin();; end = ++at) {
      at = std::mismatch(at, now.end(), before.bytes.begin() + (at - now.begin())).first;
      if (at == now.end()) break;
      if (start != end && at - end < kBetween) continue;
      add(spans, before.start + static_cast<uint64_t>(start - now.begin()), static_cast<uint64_t>(end - start));
      start = at;
    }
    add(spans, before.start + static_cast<uint64_t>(start - now.begin()), static_cast<uint64_t>(end - start));
  }
}

// How many bytes were written at an out or in_out argument.
uint64_t written_size(const Arg& arg, Args args, int index, uint64_t size, int64_t result, const Memory& memory) {
  const Extent& extent = arg.extent;
  switch (extent.kind) {
    case ExtentKind::none:
      return 0;
    case ExtentKind::fixed:
    case ExtentKind::length_of:
    case ExtentKind::ioc_size:
      return size;
    // The kernel looks at no more bits of an fd_set than the process has descriptors.
    case ExtentKind::arg:
      return extent.divisor == 1 ? size : readable(memory, args[index], size, true);
    case ExtentKind::semaphores:
      return readable(memory, args[index], size, true);
    case ExtentKind::result:
      return result < 0 ? 0 : std::min(size, times(static_cast<uint64_t>(result), extent.scale) + extent.header);
    case ExtentKind::pointee_u32:
      return std::min(size, times(u32_at(memory, args[extent.value]), extent.scale));
    case ExtentKind::option:
      return std::min(size, option_length(extent, args, memory));
    case ExtentKind::self_u32: {
      const uint64_t after = times(u32_at(memory, args[index] + extent.value), extent.scale) + extent.header;
      return std::min(size, std::max<uint64_t>(after, sizeof(uint32_t)));
    }
    case ExtentKind::c_string:
      return string_size(memory, args[index], size);
  }
  return 0;
}

// Distributes `bytes` bytes over `count` buffers, starting with `first`.
void spread(std::vector<Span>& spans, std::span<const Span> buffers, uint64_t bytes, bool payload) {
  for (const Span& buffer : buffers) {
    const uint64_t length = std::min(buffer.length, bytes);
    add(spans, buffer.address, length, payload);
    bytes -= length;
  }
}

void add_message_output(std::vector<Span>& spans, std::span<const Span> outputs, std::span<const Span> buffers,
                        uint64_t bytes, const Memory& memory) {
  const Span& name = outputs[kName];
  const Span& control = outputs[kControl];
  uint64_t control_length = 0;
  memory.get(outputs[kControlLength].address, control_length);
  add(spans, name.address, std::min<uint64_t>(name.length, u32_at(memory, outputs[kNameLength].address)));
  add(spans, control.address, std::min(control.length, control_length));
  for (const MessageOutput field : {kNameLength, kControlLength, kFlags, kLength}) {
    add(spans, outputs[field].address, outputs[field].length);
  }
  spread(spans, buffers, bytes, true);
}

void add_message_outputs(std::vector<Span>& spans, ArgKind kind, const EntrySizes& entry, int64_t result,
                         const Memory& memory) {
  const size_t messages = entry.fixed_outputs.size() / kMessageOutputs;
  const size_t done = kind == ArgKind::msghdr_out ? messages : std::min<size_t>(messages, result);
  std::span<const Span> buffers(entry.buffers);
  for (size_t i = 0; i < done; ++i) {
    const auto outputs = std::span(entry.fixed_outputs).subspan(i * kMessageOutputs, kMessageOutputs);
    if (kind == ArgKind::mmsghdr_in) {
      add(spans, outputs[kLength].address, outputs[kLength].length);
      continue;
    }
    const uint64_t bytes = kind == ArgKind::msghdr_out ? result : u32_at(memory, outputs[kLength].address);
    add_message_output(spans, outputs, buffers.first(entry.buffer_counts[i]), bytes, memory);
    buffers = buffers.subspan(entry.buffer_counts[i]);
  }
}

void add_output(std::vector<Span>& spans, const SyscallRow& row, Args args, int index, const EntrySizes& entry,
                int64_t result, const Memory& memory) {
  const Arg& arg = row.args[index];
  switch (arg.kind) {
    case ArgKind::out:
    case ArgKind::in_out: {
      if (args[index] == 0) return;
      return add(spans, args[index], written_size(arg, args, index, entry.size[index], result, memory), arg);
    }
    case ArgKind::iovec_out:
      return spread(spans, entry.buffers, static_cast<uint64_t>(result), arg.payload);
    case ArgKind::msghdr_out:
    case ArgKind::mmsghdr_in:
    case ArgKind::mmsghdr_out:
      return add_message_outputs(spans, arg.kind, entry, result, memory);
    case ArgKind::ifconf:
      add(spans, args[index], sizeof(uint32_t));
      for (const Span& buffer : entry.fixed_outputs) {
        add(spans, buffer.address, std::min<uint64_t>(buffer.length, u32_at(memory, args[index])));
      }
      return;
    case ArgKind::ethtool:
      for (const Span& command : entry.fixed_outputs) add(spans, command.address, result < 0 ? 0 : command.length);
      return;
    case ArgKind::watched:
      return add_changes(spans, entry, memory);
    default:
      return;
  }
}

}  // namespace

bool is_described(const SyscallRow& row, Args args, const Memory& memory) {
  for (size_t i = 0; i < args.size(); ++i) {
    if (row.args[i].kind == ArgKind::ethtool) {
      uint32_t command = 0;
      const Address at = ethtool_data(args[i], memory);
      if (memory.get(at, command) && ethtool_command(args[i], memory).length == 0) return false;
    }
    if (row.args[i].extent.kind == ExtentKind::option && option_writes_elsewhere(args[1], args[2])) return false;
    if (row.args[i].kind == ArgKind::filesystem && is_served(memory.string(args[i]))) return false;
  }
  return true;
}

void inputs(const SyscallRow& row, Args args, const Memory& memory, std::vector<Span>& spans) {
  spans.clear();
  for (int i = 0; i < 6; ++i) add_input(spans, row, args, i, memory);
}

std::vector<Span> inputs(const SyscallRow& row, Args args, const Memory& memory) {
  std::vector<Span> spans;
  inputs(row, args, memory, spans);
  return spans;
}

void entry_sizes(const SyscallRow& row, Args args, const Memory& memory, EntrySizes& entry) {
  entry.size = {};
  entry.buffers.clear();
  entry.buffer_counts.clear();
  entry.fixed_outputs.clear();
  entry.watched.clear();
  for (int i = 0; i < 6; ++i) {
    const Arg& arg = row.args[i];
    if (is_output(arg.kind)) entry.size[i] = capacity(row, args, i, memory);
    if (arg.kind == ArgKind::ifconf) entry.fixed_outputs.push_back(ifconf_buffer(args[i], memory));
    if (arg.kind == ArgKind::ethtool) entry.fixed_outputs.push_back(ethtool_command(args[i], memory));
    if (arg.kind == ArgKind::iovec_out) add_buffers(entry, args[i], vector_count(row, args, i), arg.payload, memory);
    if (arg.kind == ArgKind::msghdr_out || arg.kind == ArgKind::mmsghdr_in || arg.kind == ArgKind::mmsghdr_out) {
      add_messages(entry, row, args, i, memory);
    }
    if (arg.kind == ArgKind::watched) watch(entry, args[i], capacity(row, args, i, memory), memory);
  }
}

EntrySizes entry_sizes(const SyscallRow& row, Args args, const Memory& memory) {
  EntrySizes entry;
  entry_sizes(row, args, memory, entry);
  return entry;
}

namespace {

// What a call may have written beyond what it says: one that has failed because it could not write everything, or that
// reads whole blocks. `done`: so many bytes it has written for certain.
void add_outputs_in_part(std::vector<Span>& spans, Args args, const EntrySizes& entry, uint64_t done,
                         const Memory& memory) {
  constexpr uint64_t kMost = 1 << 20;  // of one buffer; what is transferred in larger pieces is counted instead
  for (const Span& span : possible_outputs(args, entry)) {
    const uint64_t length = std::min(span.length, done + kMost);
    done -= std::min(done, length);
    add(spans, span.address, readable(memory, span.address, length, false));
  }
}

}  // namespace

void outputs(const SyscallRow& row, Args args, const EntrySizes& entry, int64_t result, const Memory& memory,
             std::vector<Span>& spans, bool wrote_more) {
  spans.clear();
  const bool in_part = wrote_more || (result == -EFAULT && entry.watched.empty());
  if (in_part) add_outputs_in_part(spans, args, entry, static_cast<uint64_t>(std::max<int64_t>(result, 0)), memory);
  for (int i = 0; i < 6 && !in_part; ++i) {
    if (!is_written(row.args[i].written, result)) continue;
    const size_t first = spans.size();
    add_output(spans, row, args, i, entry, result, memory);
    // If it is not certain that the kernel wrote, the address may not be memory at all.
    if (result >= 0 && row.args[i].written != Written::always) continue;
    for (size_t k = first; k < spans.size(); ++k) {
      spans[k].length = readable(memory, spans[k].address, spans[k].length, false);
    }
  }
  std::erase_if(spans, [](const Span& span) { return span.length == 0; });
}

std::vector<Span> possible_outputs(Args args, const EntrySizes& entry) {
  std::vector<Span> spans;
  for (size_t i = 0; i < args.size(); ++i) {
    if (entry.size[i]) spans.push_back({args[i], entry.size[i]});
  }
  spans.insert(spans.end(), entry.buffers.begin(), entry.buffers.end());
  spans.insert(spans.end(), entry.fixed_outputs.begin(), entry.fixed_outputs.end());
  for (const Stretch& watched : entry.watched) spans.push_back({watched.start, watched.bytes.size()});
  return spans;
}

std::vector<Span> outputs(const SyscallRow& row, Args args, const EntrySizes& entry, int64_t result,
                          const Memory& memory) {
  std::vector<Span> spans;
  outputs(row, args, entry, result, memory, spans);
  return spans;
}

std::vector<uint64_t> datagram_lengths(const SyscallRow& row, Args args, int64_t result, const Memory& memory) {
  if (result < 0) return {};
  for (int i = 0; i < 6; ++i) {
    if (row.args[i].kind != ArgKind::mmsghdr_out) continue;
    std::vector<uint64_t> lengths;
    for (uint64_t k = 0; k < std::min<uint64_t>(result, kMaxVector); ++k) {
      lengths.push_back(u32_at(memory, args[i] + k * sizeof(mmsghdr) + offsetof(mmsghdr, msg_len)));
    }
    return lengths;
  }
  return {static_cast<uint64_t>(result)};
}

}  // namespace redrive
