#include "base/remote.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <utility>

#include "base/assert.h"
#include "base/brief_file.h"
#include "base/fd.h"
#include "base/procfs.h"

namespace redrive {

namespace {

// The unit in which ptrace(2) reads and writes.
using Word = long;
static_assert(kPageSize % sizeof(Word) == 0);

// Reads up to the end of a page at most, without a descriptor: whatever the protection if the caller is the process's
// tracer, otherwise only what the protection allows.
bool read_by_number(pid_t pid, Address from, uint8_t* to, size_t size) {
  const iovec here{to, size}, there{reinterpret_cast<void*>(from), size};
  if (process_vm_readv(pid, &here, 1, &there, 1, 0) == static_cast<ssize_t>(size)) return true;
  for (size_t done = 0; done < size;) {
    const size_t skipped = (from + done) % sizeof(Word), length = std::min(sizeof(Word) - skipped, size - done);
    errno = 0;
    const Word word = ptrace(PTRACE_PEEKDATA, pid, from + done - skipped, nullptr);
    if (errno != 0) return false;
    std::memcpy(to + done, reinterpret_cast<const uint8_t*>(&word) + skipped, length);
    done += length;
  }
  return true;
}

bool write_by_number(pid_t pid, Address to, const uint8_t* from, size_t size) {
  const iovec here{const_cast<uint8_t*>(from), size}, there{reinterpret_cast<void*>(to), size};
  if (process_vm_writev(pid, &here, 1, &there, 1, 0) == static_cast<ssize_t>(size)) return true;
  for (size_t done = 0; done < size;) {
    const Address start = (to + done) / sizeof(Word) * sizeof(Word);
    const size_t skipped = to + done - start, length = std::min(sizeof(Word) - skipped, size - done);
    Word word = 0;
    if (!read_by_number(pid, start, reinterpret_cast<uint8_t*>(&word), sizeof word)) return false;
    std::memcpy(reinterpret_cast<uint8_t*>(&word) + skipped, from + done, length);
    if (ptrace(PTRACE_POKEDATA, pid, start, word) != 0) return false;
    done += length;
  }
  return true;
}

// By /proc/PID/mem.
class OpenedMemory : public MemorySource {
 public:
  explicit OpenedMemory(Fd file) : file_(std::move(file)) {}

  size_t read_some(Address from, void* to, size_t size) const override {
    size_t done = 0;
    while (done < size) {
      const ssize_t n =
          ::pread(file_.get(), static_cast<char*>(to) + done, size - done, static_cast<off_t>(from + done));
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    return done;
  }
  bool write(Address to, const void* from, size_t size) const override {
    size_t done = 0;
    while (done < size) {
      const ssize_t n =
          ::pwrite(file_.get(), static_cast<const char*>(from) + done, size - done, static_cast<off_t>(to + done));
      if (n <= 0) return false;
      done += static_cast<size_t>(n);
    }
    return true;
  }
  // Of memory that is there, address 0 can be read, or reading it fails.
  bool gone() const override {
    char byte = 0;
    return ::pread(file_.get(), &byte, sizeof byte, 0) == 0;
  }

 private:
  Fd file_;
};

// Without a descriptor.
class NumberedMemory : public MemorySource {
 public:
  explicit NumberedMemory(pid_t pid) : pid_(pid) {}

  size_t read_some(Address from, void* to, size_t size) const override {
    return in_pages(from, size, [&](size_t done, size_t piece) {
      return read_by_number(pid_, from + done, static_cast<uint8_t*>(to) + done, piece);
    });
  }
  bool write(Address to, const void* from, size_t size) const override {
    return in_pages(to, size, [&](size_t done, size_t piece) {
             return write_by_number(pid_, to + done, static_cast<const uint8_t*>(from) + done, piece);
           }) == size;
  }
  bool gone() const override {
    char byte = 0;
    const iovec here{&byte, sizeof byte}, there{nullptr, sizeof byte};
    return process_vm_readv(pid_, &here, 1, &there, 1, 0) < 0 && errno == ESRCH;
  }

 private:
  // How many bytes are done when `one` is false for the first time.
  static size_t in_pages(Address from, size_t size, const std::function<bool(size_t done, size_t piece)>& one) {
    size_t done = 0;
    while (done < size) {
      const size_t piece = std::min(size - done, kPageSize - (from + done) % kPageSize);
      if (!one(done, piece)) break;
      done += piece;
    }
    return done;
  }

  pid_t pid_;
};

class Snapshot : public MemorySource {
 public:
  explicit Snapshot(const Memory& source) : source_(source) {}

  size_t read_some(Address from, void* to, size_t size) const override {
    if (size > kPageSize) {  // this much is not read again
      const size_t done = source_.read_some(from, to, size);
      lacks_some_ |= done < size;
      return done;
    }
    size_t done = 0;
    while (done < size) {
      const size_t offset = (from + done) % kPageSize;
      const Bytes& page = page_at(from + done - offset);
      if (offset >= page.size()) break;
      const size_t length = std::min(size - done, page.size() - offset);
      std::memcpy(static_cast<uint8_t*>(to) + done, page.data() + offset, length);
      done += length;
    }
    return done;
  }
  bool write(Address, const void*, size_t) const override { return false; }
  bool gone() const override { return lacks_some_ && source_.gone(); }

 private:
  const Bytes& page_at(Address start) const {
    for (const auto& [known, contents] : pages_) {
      if (known == start) return contents;
    }
    Bytes contents(kPageSize);
    contents.resize(source_.read_some(start, contents.data(), contents.size()));
    lacks_some_ |= contents.size() < kPageSize;
    return pages_.emplace_back(start, std::move(contents)).second;
  }

  const Memory& source_;
  mutable std::vector<std::pair<Address, Bytes>> pages_;
  mutable bool lacks_some_ = false;  // of what was asked for
};

}  // namespace

Result<Memory> Memory::open(pid_t pid) {
  const std::string path = proc_path(pid, "mem");
  Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file) return Memory(pid, std::make_shared<OpenedMemory>(std::move(file)));
  if (!no_file_left(errno)) return errno_error("cannot open " + path);
  return Memory(pid, std::make_shared<NumberedMemory>(pid));
}

Memory Memory::shared(pid_t pid, const Memory& source) {
  const bool numbered = dynamic_cast<const NumberedMemory*>(source.source_.get());
  return {pid, numbered ? std::make_shared<NumberedMemory>(pid) : source.source_};
}

Memory Memory::of(std::span<const Piece> pieces) {
  Memory memory;
  memory.pieces_ = pieces;
  return memory;
}

const uint8_t* Memory::view(Address from, size_t size) const {
  for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) {
    const bool whole =
        from >= piece->address && piece->data.size() >= size && from - piece->address <= piece->data.size() - size;
    if (whole) return piece->data.data() + (from - piece->address);
    if (from < piece->address + piece->data.size() && piece->address < from + size) return nullptr;
  }
  return nullptr;
}

Memory Memory::snapshot(const Memory& source) { return {source.pid_, std::make_shared<Snapshot>(source)}; }

size_t Memory::read_piece(Address from, void* to, size_t size) const {
  for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) {
    if (from < piece->address) size = std::min<size_t>(size, piece->address - from);  // that piece takes precedence
    if (from < piece->address || from - piece->address >= piece->data.size()) continue;
    const size_t offset = from - piece->address;
    const size_t length = std::min(size, piece->data.size() - offset);
    std::memcpy(to, piece->data.data() + offset, length);
    return length;
  }
  return 0;
}

size_t Memory::read_some(Address from, void* to, size_t size) const {
  if (source_) return source_->read_some(from, to, size);
  size_t done = 0;
  while (done < size) {
    const size_t n = read_piece(from + done, static_cast<uint8_t*>(to) + done, size - done);
    if (n == 0) break;
    done += n;
  }
  return done;
}

void Memory::append_some(Address from, size_t size, Bytes& to) const {
  constexpr size_t kPiece = 1 << 20;
  for (size_t wanted = kPiece, got = kPiece; size > 0 && got == wanted; size -= got, from += got) {
    wanted = std::min(size, kPiece);
    const size_t before = to.size();
    to.resize(before + wanted);
    got = read_some(from, to.data() + before, wanted);
    to.resize(before + got);
  }
}

bool Memory::read(Address from, void* to, size_t size) const { return read_some(from, to, size) == size; }

bool Memory::write(Address to, const void* from, size_t size) const {
  return source_ ? source_->write(to, from, size) : size == 0;
}

namespace {

// process_vm_readv(2) and process_vm_writev(2) have one signature. They obey page protections.
bool transfer(pid_t pid, std::span<const MemoryPiece> pieces, decltype(process_vm_readv)* call) {
  std::array<iovec, IOV_MAX> here, there;
  ASSERT(pieces.size() <= here.size());
  size_t size = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    here[i] = {pieces[i].data, pieces[i].size};
    there[i] = {reinterpret_cast<void*>(pieces[i].address), pieces[i].size};
    size += pieces[i].size;
  }
  return call(pid, here.data(), pieces.size(), there.data(), pieces.size(), 0) == static_cast<ssize_t>(size);
}

}  // namespace

bool Memory::read(std::span<const MemoryPiece> pieces) const {
  return transfer(pid_, pieces, process_vm_readv) ||
         std::all_of(pieces.begin(), pieces.end(),
                     [&](const MemoryPiece& piece) { return read(piece.address, piece.data, piece.size); });
}

bool Memory::write(std::span<const MemoryPiece> pieces) const {
  return transfer(pid_, pieces, process_vm_writev) ||
         std::all_of(pieces.begin(), pieces.end(),
                     [&](const MemoryPiece& piece) { return write(piece.address, piece.data, piece.size); });
}

std::vector<Stretch> Memory::stretches(std::span<const MemoryPiece> pieces) const {
  std::vector<Stretch> out;
  for (const auto& piece : pieces) {
    const bool near = !out.empty() && piece.address - out.back().start < kPageSize;
    Stretch& stretch = near ? out.back() : out.emplace_back(Stretch{piece.address, {}});
    stretch.bytes.resize(std::max(stretch.bytes.size(), piece.address + piece.size - stretch.start));
  }
  std::vector<MemoryPiece> wanted;
  for (auto& stretch : out) wanted.push_back({stretch.start, stretch.bytes.data(), stretch.bytes.size()});
  const bool all = out.empty() || (wanted.size() <= IOV_MAX && transfer(pid_, wanted, process_vm_readv));
  if (!all) {
    std::erase_if(out, [&](Stretch& each) { return !read(each.start, each.bytes.data(), each.bytes.size()); });
  }
  return out;
}

bool Memory::patch(std::span<const MemoryPiece> pieces) const {
  bool all = true;
  auto left = pieces.begin();
  for (auto& stretch : stretches(pieces)) {
    for (; left != pieces.end() && left->address < stretch.start; ++left) all = false;
    for (; left != pieces.end() && left->address < stretch.end(); ++left) {
      std::memcpy(stretch.bytes.data() + (left->address - stretch.start), left->data, left->size);
    }
    all = write(stretch.start, stretch.bytes.data(), stretch.bytes.size()) && all;
  }
  return all && left == pieces.end();
}

std::string Memory::string(Address from, size_t limit) const {
  std::string out;
  char chunk[256];
  while (out.size() < limit) {
    // Not across a page boundary, so that the string may end just before an unmapped page.
    const size_t to_boundary = kPageSize - (from + out.size()) % kPageSize;
    const size_t want = std::min({sizeof chunk, limit - out.size(), static_cast<size_t>(to_boundary)});
    const size_t got = read_some(from + out.size(), chunk, want);
    const size_t length = strnlen(chunk, got);
    out.append(chunk, length);
    if (length < got || got < want) break;
  }
  return out;
}

bool get_regs(pid_t tid, user_regs_struct& regs) { return ptrace(PTRACE_GETREGS, tid, nullptr, &regs) == 0; }

bool set_regs(pid_t tid, const user_regs_struct& regs) {
  return ptrace(PTRACE_SETREGS, tid, nullptr, const_cast<user_regs_struct*>(&regs)) == 0;
}

Bytes get_xstate(pid_t tid) {
  Bytes state(16384);
  iovec io{state.data(), state.size()};
  if (ptrace(PTRACE_GETREGSET, tid, NT_X86_XSTATE, &io) != 0) return {};
  state.resize(io.iov_len);
  return state;
}

bool set_xstate(pid_t tid, const Bytes& xstate) {
  iovec io{const_cast<uint8_t*>(xstate.data()), xstate.size()};
  return ptrace(PTRACE_SETREGSET, tid, NT_X86_XSTATE, &io) == 0;
}

bool skip_call(pid_t tid) { return ptrace(PTRACE_POKEUSER, tid, offsetof(user, regs.orig_rax), ~0ull) == 0; }

bool get_siginfo(pid_t tid, siginfo_t& info) { return ptrace(PTRACE_GETSIGINFO, tid, nullptr, &info) == 0; }

bool set_siginfo(pid_t tid, const siginfo_t& info) { return ptrace(PTRACE_SETSIGINFO, tid, nullptr, &info) == 0; }

bool get_signal_mask(pid_t tid, uint64_t& mask) { return ptrace(PTRACE_GETSIGMASK, tid, sizeof mask, &mask) == 0; }

bool set_signal_mask(pid_t tid, uint64_t mask) { return ptrace(PTRACE_SETSIGMASK, tid, sizeof mask, &mask) == 0; }

std::optional<RseqArea> rseq_area(pid_t tid) {
  struct {
    uint64_t address;
    uint32_t length, signature, flags, padding;
  } found{};
  constexpr auto kGetRseq = static_cast<__ptrace_request>(0x420f);  // PTRACE_GET_RSEQ_CONFIGURATION
  if (ptrace(kGetRseq, tid, sizeof found, &found) < 0 || found.address == 0) return {};
  return RseqArea{found.address, found.length, found.signature};
}

bool seize(pid_t tid, long options) { return ptrace(PTRACE_SEIZE, tid, nullptr, options) == 0; }

bool interrupt(pid_t tid) { return ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr) == 0; }

bool resume(pid_t tid, __ptrace_request how, int signal) { return ptrace(how, tid, nullptr, signal) == 0; }

bool detach(pid_t tid, int signal) { return ptrace(PTRACE_DETACH, tid, nullptr, signal) == 0; }

uint64_t event_message(pid_t tid) {
  unsigned long message = 0;
  ptrace(PTRACE_GETEVENTMSG, tid, nullptr, &message);
  return message;
}

}  // namespace redrive
