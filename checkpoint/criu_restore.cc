#include "checkpoint/criu_restore.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/procfs.h"
#include "base/text.h"
#include "checkpoint/address_space.h"
#include "checkpoint/criu_files.h"
#include "checkpoint/criu_images.pb.h"
#include "checkpoint/criu_stub.h"

namespace redrive {
namespace {

namespace fs = std::filesystem;

using namespace criu_value;

// Whether CRIU maps it: it is the process's own.
bool is_own(const Mapping& mapping) { return !mapping.shared_object; }

Mapping gate_page(Address start, int protection) {
  Mapping page;
  page.start = start;
  page.end = start + kPageSize;
  page.protection = protection;
  return page;
}

// The numbers of a process and its threads in CRIU's namespace.
struct Numbers {
  uint32_t first, count;
};

// The directory with the images of one process. It is in a file system of the namespaces of CRIU.
class Directory final : public ProcessMaker {
 public:
  static Result<std::unique_ptr<ProcessMaker>> begin(const Criu& criu, const ProcessPlan& plan, Numbers numbers) {
    std::unique_ptr<Directory> made(new Directory(criu, plan, numbers));
    if (mkdir(made->seen_.c_str(), S_IRWXU) != 0) return errno_error("cannot make a directory for images of CRIU");
    TRY(made->write_all());
    return std::unique_ptr<ProcessMaker>(std::move(made));
  }
  ~Directory() override {
    std::error_code ignored;
    fs::remove_all(seen_, ignored);
  }

  Result<void> fill(std::span<const MemoryPiece> pieces) override;
  Result<Made> finish() override;

 private:
  Directory(const Criu& criu, const ProcessPlan& plan, Numbers numbers)
      : criu_(criu),
        plan_(plan),
        numbers_(numbers),
        path_(fmt::format("{}/{}", StubNamespaces::kPlace, numbers.first)),
        seen_(proc_path(StubNamespaces::of_criu().holder(), "root") + path_),
        mappings_(plan.state.mappings),
        pages_(plan.pages) {}

  Result<void> write_all();
  Result<void> write_memory();
  Result<void> write_pages();
  Result<void> write_process();
  Result<void> write_file(const std::string& name, const std::string& content, mode_t mode = S_IRUSR) const;
  Result<void> write_image(const std::string& name, const CriuFileWriter& file) const {
    return write_file(name + ".img", file.content());
  }
  Result<void> write_image(const std::string& name, CriuFile kind, const google::protobuf::MessageLite& message) const {
    CriuFileWriter file(kind);
    file.add(message);
    return write_image(name, file);
  }
  std::string numbered(const char* name) const { return fmt::format("{}-{}", name, numbers_.first); }
  // The number by which images name a file.
  uint32_t file(const std::string& path);
  Result<void> add_mapping(const Mapping& mapping, criu::mm_entry& mm);
  Result<pid_t> restored_pid() const;

  const Criu& criu_;
  const ProcessPlan& plan_;
  const Numbers numbers_;
  const std::string path_, seen_;  // for CRIU, and for us
  std::vector<Mapping> mappings_;  // with the stub's own
  std::vector<Address> pages_;     // with that of the stub's code
  std::vector<std::string> files_;
  Fd contents_;  // of the pages
};

Result<void> Directory::write_file(const std::string& name, const std::string& content, mode_t mode) const {
  const std::string path = seen_ + "/" + name;
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file || ::write(file.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
    return errno_error("cannot write an image for CRIU");
  }
  return {};
}

uint32_t Directory::file(const std::string& path) {
  const auto found = std::find(files_.begin(), files_.end(), path);
  const auto number = static_cast<uint32_t>(found - files_.begin()) + 1;
  if (found == files_.end()) files_.push_back(path);
  return number;
}

Result<void> Directory::write_all() {
  for (const Mapping& page :
       {gate_page(kGateStart, PROT_READ | PROT_EXEC), gate_page(kGateStart + kPageSize, PROT_READ | PROT_WRITE)}) {
    const auto after = std::find_if(mappings_.begin(), mappings_.end(),
                                    [&](const Mapping& mapping) { return mapping.end > page.start; });
    if (after != mappings_.end() && after->start < page.end) {
      return Error{"the recorded program used memory where a replay has code of its own"};
    }
    mappings_.insert(after, page);
  }
  pages_.insert(std::lower_bound(pages_.begin(), pages_.end(), kGateStart), kGateStart);
  TRY(write_image("inventory", CriuFile::inventory, criu_stub::inventory()));
  TRY(write_process());
  TRY(write_memory());
  TRY(write_pages());
  CriuFileWriter files(CriuFile::files);
  for (uint32_t number = 1; number <= files_.size(); ++number) {
    files.add(criu_stub::file(number, files_[number - 1]));
  }
  return write_image("files", files);
}

Result<void> Directory::add_mapping(const Mapping& mapping, criu::mm_entry& mm) {
  auto& vma = *mm.add_vmas();
  vma.set_start(mapping.start);
  vma.set_end(mapping.end);
  vma.set_pgoff(mapping.offset);
  vma.set_prot(static_cast<uint32_t>(mapping.protection));
  vma.set_fd(-1);
  if (mapping.fork_advice) vma.set_madv(mapping.fork_advice);
  if (mapping.file) {
    ASSIGN_OR_RETURN(const std::string path, plan_.file_path(mapping.file));
    vma.set_shmid(file(fs::absolute(path)));
    vma.set_flags(MAP_PRIVATE);
    vma.set_status(kRegular | kFilePrivate);
    vma.set_fdflags(O_RDONLY);
    return {};
  }
  vma.set_shmid(0);
  vma.set_flags(MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (mapping.is_stack() ? MAP_GROWSDOWN | MAP_STACK : 0));
  vma.set_status(kRegular | kAnonymousPrivate | (mapping.is_stack() ? kStack : 0));
  return {};
}

Result<void> Directory::write_memory() {
  const Bytes program = stub_program();
  const std::string name = criu_stub::kName;
  TRY(write_file(name, std::string(program.begin(), program.end()), S_IRUSR | S_IXUSR));
  criu::mm_entry mm = criu_stub::layout(file(path_ + "/" + name));
  for (const Mapping& mapping : mappings_) {
    if (is_own(mapping)) TRY(add_mapping(mapping, mm));
  }
  return write_image(numbered("mm"), CriuFile::mm, mm);
}

// Which pages there are; and the file for their contents, in the same order.
Result<void> Directory::write_pages() {
  CriuFileWriter map(CriuFile::pagemap);
  criu::pagemap_head head;
  head.set_pages_id(1);
  map.add(head);
  for (size_t i = 0; i < pages_.size();) {
    // CRIU takes the pages of one mapping at a time.
    const Mapping* const mapping = mapping_at(mappings_, pages_[i]);
    size_t end = i + 1;
    while (mapping && end < pages_.size() && pages_[end] == pages_[end - 1] + kPageSize && pages_[end] < mapping->end) {
      ++end;
    }
    criu::pagemap_entry entry;
    entry.set_vaddr(pages_[i]);
    entry.set_nr_pages(static_cast<uint32_t>(end - i));
    entry.set_flags(kPagePresent);
    map.add(entry);
    i = end;
  }
  TRY(write_image(numbered("pagemap"), map));
  const std::string path = seen_ + "/pages-1.img";
  contents_ = Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR));
  if (!contents_ || ftruncate(contents_.get(), static_cast<off_t>(pages_.size() * kPageSize)) != 0) {
    return errno_error("cannot write an image for CRIU");
  }
  Bytes code = stub_program();
  code.resize(kPageSize);
  const MemoryPiece piece{kGateStart, code.data(), code.size()};
  return fill(std::span(&piece, 1));
}

Result<void> Directory::fill(std::span<const MemoryPiece> pieces) {
  for (const MemoryPiece& piece : pieces) {
    const auto first = std::lower_bound(pages_.begin(), pages_.end(), piece.address);
    const size_t count = piece.size / kPageSize;
    const auto left = static_cast<size_t>(pages_.end() - first);
    if (count > left || first[0] != piece.address ||
        first[static_cast<ptrdiff_t>(count) - 1] != piece.address + piece.size - kPageSize) {
      return Error{"the image holds a page that its list does not have", Status::damaged};
    }
    const auto at = static_cast<off_t>(static_cast<size_t>(first - pages_.begin()) * kPageSize);
    if (pwrite(contents_.get(), piece.data, piece.size, at) != static_cast<ssize_t>(piece.size)) {
      return errno_error("cannot write the pages of an image for CRIU");
    }
  }
  return {};
}

Result<void> Directory::write_process() {
  criu::pstree_entry tree;
  tree.set_pid(numbers_.first);
  tree.set_ppid(0);
  tree.set_pgid(numbers_.first);
  tree.set_sid(numbers_.first);
  for (uint32_t i = 0; i < numbers_.count; ++i) {
    const uint32_t number = numbers_.first + i;
    tree.add_threads(number);
    TRY(write_image(fmt::format("core-{}", number), CriuFile::core, criu_stub::thread(i == 0)));
  }
  TRY(write_image("pstree", CriuFile::pstree, tree));
  TRY(write_image(numbered("ids"), CriuFile::ids, criu_stub::ids()));
  TRY(write_image(fmt::format("fdinfo-{}", criu_stub::kFiles), CriuFileWriter(CriuFile::fdinfo)));
  criu::fs_entry places;
  places.set_cwd_id(file(StubNamespaces::kEmpty));
  places.set_root_id(file(StubNamespaces::kEmpty));
  places.set_umask(0);
  TRY(write_image(numbered("fs"), CriuFile::fs, places));
  return write_image("seccomp", CriuFile::seccomp, criu_stub::filters(plan_.tier));
}

// The number of a process or thread in the innermost of its PID namespaces.
uint32_t inner_number(pid_t tid) {
  const ProcValues status = proc_status(tid);
  const std::string_view numbers = status.text("NSpid");
  return static_cast<uint32_t>(parse_number(numbers.substr(numbers.find_last_of(" \t") + 1)).value_or(0));
}

// The process has become a child of the one that holds the namespaces.
Result<pid_t> Directory::restored_pid() const {
  const pid_t holder = StubNamespaces::of_criu().holder();
  std::ifstream children(proc_path(holder, fmt::format("task/{}/children", holder)));
  for (pid_t child = 0; children >> child;) {
    if (inner_number(child) == numbers_.first) return child;
  }
  return Error{"a process that CRIU has restored has ended"};
}

Result<ProcessMaker::Made> Directory::finish() {
  TRY(criu_.restore(StubNamespaces::of_criu(), path_, seen_));
  ASSIGN_OR_RETURN(const pid_t pid, restored_pid());
  ASSIGN_OR_RETURN(Stub stub, Stub::adopt(pid));
  std::vector<pid_t> threads(numbers_.count, -1);
  for (const pid_t tid : proc_threads(pid)) {
    const uint32_t place = inner_number(tid) - numbers_.first;
    if (place < threads.size()) threads[place] = tid;
  }
  if (std::find(threads.begin(), threads.end(), -1) != threads.end()) {
    return Error{"a thread that CRIU has restored has ended"};
  }
  StubCalls calls(stub, pid);
  for (const Mapping& mapping : plan_.state.mappings) {
    if (!is_own(mapping)) TRY(map(calls, mapping, plan_.shared, plan_.file_path));
  }
  TRY(calls.run());
  return Made{std::move(stub), std::move(threads)};
}

}  // namespace

Result<std::unique_ptr<CriuEngine>> CriuEngine::make() {
  ASSIGN_OR_RETURN(Criu criu, Criu::find("restores by criu"));
  const StubNamespaces& namespaces = StubNamespaces::of_criu();
  if (!namespaces.any()) return Error{"cannot make namespaces for criu: " + namespaces.missing()};
  constexpr uint32_t kLeastPids = 1 << 15;
  uint32_t most_pids = kLeastPids;
  std::ifstream("/proc/sys/kernel/pid_max") >> most_pids;
  return std::unique_ptr<CriuEngine>(new CriuEngine(std::move(criu), std::max(most_pids, kLeastPids)));
}

Result<std::unique_ptr<ProcessMaker>> CriuEngine::begin(const ProcessPlan& plan) {
  const auto count = static_cast<uint32_t>(std::max<size_t>(plan.threads, 1));
  return Directory::begin(criu_, plan, {take_numbers(count), count});
}

// The upper half of all numbers, from its end on: the processes of CRIU itself get numbers from the other end.
uint32_t CriuEngine::take_numbers(uint32_t count) {
  const uint32_t taken = taken_.fetch_add(count) % (most_pids_ / 2);
  return most_pids_ - count - std::min(taken, most_pids_ / 2);
}

}  // namespace redrive
