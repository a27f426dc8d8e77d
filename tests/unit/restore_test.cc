// The state of a unit as bytes, the stub, and a unit that is built from a state, read back and compared.
#include "checkpoint/restore.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "checkpoint/address_space.h"
#include "checkpoint/state_images.pb.h"
#include "checkpoint/stub_maker.h"
#include "checkpoint/stub_namespaces.h"
#include "tests/unit/nameless_file.h"
#include "tests/unit/unit_test.h"

namespace redrive::restore_test {

namespace {

constexpr uint64_t kNoLimit = ~0ull;  // of the stack

UnitState random_state(std::mt19937_64& random) {
  const auto below = [&](uint64_t limit) { return random() % limit; };
  const auto serial = [&] { return static_cast<uint32_t>(random() >> below(64)); };
  UnitState state;
  state.trigger = serial();
  state.next_thread = serial();
  state.next_process = serial();
  if (below(2)) state.first_joined_thread = serial();
  if (below(2)) state.first_joined_process = serial();
  for (uint64_t i = below(4); i > 0; --i) {
    ProcessState process;
    process.process = serial();
    process.pid = static_cast<int32_t>(serial());
    process.brk = random();
    process.stack_limit = random() >> below(64);
    for (uint64_t k = below(5); k > 0; --k) {
      Mapping m;
      m.start = (random() >> 17) * kPageSize;
      m.end = m.start + below(100) * kPageSize;
      m.protection = static_cast<int>(below(8));
      m.shared = below(2) != 0;
      m.offset = random();
      m.file = below(3);
      m.shared_object = below(3);
      if (m.shared && below(2)) m.object_size = below(uint64_t{1} << 40);
      m.name = below(2) ? "[stack]" : std::string(below(200), 'n');
      process.mappings.push_back(m);
    }
    for (uint64_t k = below(3); k > 0; --k) {
      const LocalDescriptor descriptor{static_cast<uint32_t>(below(8192)), serial(), serial(), serial()};
      process.descriptors[descriptor.entry] = descriptor;
    }
    state.processes.push_back(process);
  }
  for (uint64_t i = below(5); i > 0; --i) state.zero_pages.push_back({serial(), random() & ~(kPageSize - 1)});
  for (uint64_t i = below(4); i > 0; --i) {
    ThreadState thread{serial(), serial(), below(2) != 0, false, {}, Bytes(below(4000))};
    thread.regs.rip = random();
    thread.regs.gs = random();
    if (below(2)) {
      for (auto& byte : thread.xstate) byte = static_cast<uint8_t>(random());
    }
    state.threads.push_back(thread);
  }
  return state;
}

Bytes encoded(const UnitState& state) {
  Encoder out;
  encode(state, out);
  return out.take();
}

// As versions 7 to 11 have it.
Bytes encoded_before(const UnitState& state) {
  constexpr uint64_t kSharedAndSized = 2;
  Encoder out;
  out.u(state.trigger);
  out.u(state.next_thread);
  out.u(state.next_process);
  out.u(state.first_joined_thread);
  out.u(state.first_joined_process);
  out.u(state.processes.size());
  for (const auto& process : state.processes) {
    out.u(process.process);
    out.u(static_cast<uint64_t>(process.pid));
    out.u(process.brk);
    out.u(process.mappings.size());
    for (const auto& m : process.mappings) {
      out.u(m.start);
      out.u(m.end);
      out.u(static_cast<uint64_t>(m.protection));
      out.u(m.object_size ? kSharedAndSized : m.shared);
      if (m.object_size) out.u(*m.object_size);
      out.u(m.offset);
      out.u(m.file);
      out.u(m.shared_object);
      out.str(m.name);
    }
  }
  out.u(state.zero_pages.size());
  for (const auto& page : state.zero_pages) {
    out.u(page.process);
    out.u(page.address);
  }
  out.u(state.threads.size());
  for (const auto& thread : state.threads) {
    out.u(thread.thread);
    out.u(thread.process);
    out.u(thread.in_syscall);
    out.raw(&thread.regs, sizeof thread.regs);
    out.bytes(thread.xstate);
  }
  for (const auto& process : state.processes) {
    out.u(process.stack_limit);
    out.u(process.memory_of ? *process.memory_of + uint64_t{1} : 0);
  }
  for (const auto& process : state.processes) {
    out.u(process.descriptors.size());
    for (const auto& [entry, descriptor] : process.descriptors) out.raw(&descriptor, sizeof descriptor);
  }
  return out.take();
}

void check_equal(const Mapping& a, const Mapping& b) {
  CHECK_EQ(a.start, b.start);
  CHECK_EQ(a.end, b.end);
  CHECK_EQ(a.protection, b.protection);
  CHECK_EQ(a.shared, b.shared);
  CHECK_EQ(a.offset, b.offset);
  CHECK_EQ(a.file, b.file);
  CHECK_EQ(a.shared_object, b.shared_object);
  CHECK(a.object_size == b.object_size);
  CHECK_EQ(a.name, b.name);
}

void check_equal(const UnitState& a, const UnitState& b) {
  CHECK_EQ(a.trigger, b.trigger);
  CHECK_EQ(a.next_thread, b.next_thread);
  CHECK_EQ(a.next_process, b.next_process);
  CHECK_EQ(a.first_joined_thread, b.first_joined_thread);
  CHECK_EQ(a.first_joined_process, b.first_joined_process);
  REQUIRE_EQ(a.processes.size(), b.processes.size());
  for (size_t i = 0; i < a.processes.size(); ++i) {
    const ProcessState &p = a.processes[i], &q = b.processes[i];
    CHECK_EQ(p.process, q.process);
    CHECK_EQ(p.pid, q.pid);
    CHECK_EQ(p.brk, q.brk);
    CHECK_EQ(p.stack_limit, q.stack_limit);
    CHECK(p.descriptors == q.descriptors);
    REQUIRE_EQ(p.mappings.size(), q.mappings.size());
    for (size_t k = 0; k < p.mappings.size(); ++k) check_equal(p.mappings[k], q.mappings[k]);
  }
  REQUIRE_EQ(a.zero_pages.size(), b.zero_pages.size());
  for (size_t i = 0; i < a.zero_pages.size(); ++i) {
    CHECK_EQ(a.zero_pages[i].process, b.zero_pages[i].process);
    CHECK_EQ(a.zero_pages[i].address, b.zero_pages[i].address);
  }
  REQUIRE_EQ(a.threads.size(), b.threads.size());
  for (size_t i = 0; i < a.threads.size(); ++i) {
    const ThreadState &t = a.threads[i], &u = b.threads[i];
    CHECK_EQ(t.thread, u.thread);
    CHECK_EQ(t.process, u.process);
    CHECK_EQ(t.in_syscall, u.in_syscall);
    CHECK_EQ(t.read_implies_exec, u.read_implies_exec);
    CHECK_EQ(std::memcmp(&t.regs, &u.regs, sizeof t.regs), 0);
    CHECK(t.xstate == u.xstate);
  }
}

}  // namespace

TEST_CASE("registers of threads take no more memory than the kernel has of them, together no more than programs have") {
  const auto decodes = [](size_t threads, uint32_t xstate_size) {
    UnitState state;
    state.threads.push_back({0, 0, false, false, {}, {}});
    const Bytes bytes = encoded(state);
    Decoder header(bytes);
    (void)header.u();
    images::State messages;
    const auto rest = header.take(bytes.size() - header.position());
    REQUIRE(messages.ParseFromArray(rest.data(), static_cast<int>(rest.size())));
    messages.mutable_threads(0)->set_xstate_size(xstate_size);
    for (size_t i = 1; i < threads; ++i) *messages.add_threads() = messages.threads(0);
    const std::string altered = messages.SerializeAsString();
    Encoder out;
    out.raw(bytes.data(), bytes.size() - rest.size());
    out.raw(altered.data(), altered.size());
    const Bytes claimed = out.take();
    Decoder in(claimed);
    UnitState decoded;
    return decode(in, decoded);
  };
  CHECK(decodes(1, 16 << 10));
  CHECK_FALSE(decodes(1, (16 << 10) + 1));
  CHECK(decodes(100, 16 << 10));
  CHECK_FALSE(decodes(20'000, 16 << 10));
}

TEST_CASE("signals do not end the wait for a process") {
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) {};
  sigaction(SIGALRM, &action, &before);
  const pid_t child = fork();
  if (child == 0) {
    usleep(50'000);
    _exit(7);
  }
  const itimerval often{{0, 1000}, {0, 1000}}, never{};
  setitimer(ITIMER_REAL, &often, nullptr);
  int status = 0;
  CHECK(wait_for(child, status));
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  CHECK(WEXITSTATUS(status) == 7);
}

TEST_CASE("address space: each mapping is found by its addresses, and none where nothing is") {
  void* const hole = mmap(nullptr, 3 * kPageSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(hole != MAP_FAILED);
  const Address middle = reinterpret_cast<Address>(hole) + kPageSize;
  REQUIRE_EQ(munmap(reinterpret_cast<void*>(middle), kPageSize), 0);
  const pid_t child = fork();  // whose mappings do not change while they are looked at
  if (child == 0) pause();
  const auto mappings = read_mappings(child);
  REQUIRE(mappings);
  REQUIRE_GT(mappings->size(), 5);
  for (const Mapping& mapping : *mappings) {
    CAPTURE(mapping.name);
    for (const Address address : {mapping.start, mapping.end - 1}) {
      const auto found = mapping_of(child, address);
      REQUIRE(found);
      CHECK_EQ(found->name, mapping.name);
      CHECK_EQ(found->protection, mapping.protection);
      CHECK_EQ(found->shared, mapping.shared);
      CHECK_EQ(found->offset, mapping.offset);
      CHECK_EQ(found->device, mapping.device);
      CHECK_EQ(found->inode, mapping.inode);
      CHECK_EQ(found->start, mapping.start);
      CHECK_EQ(found->end, mapping.end);
    }
  }
  CHECK_FALSE(mapping_of(child, middle));
  CHECK_FALSE(mapping_of(child, vdso_address(child)));
  const auto code = code_mappings(child);
  REQUIRE(code);
  std::vector<Mapping> executable;
  std::copy_if(mappings->begin(), mappings->end(), std::back_inserter(executable),
               [](const Mapping& m) { return m.protection & PROT_EXEC; });
  REQUIRE_EQ(code->size(), executable.size());
  for (size_t i = 0; i < code->size(); ++i) {
    CHECK_EQ((*code)[i].inode, executable[i].inode);
    CHECK_EQ((*code)[i].start, executable[i].start);
    CHECK_EQ((*code)[i].end, executable[i].end);
  }
  const auto ranges = mapped_ranges(child);
  REQUIRE(ranges);
  for (const AddressRange& range : ranges_of(*mappings)) CHECK_EQ(std::count(ranges->begin(), ranges->end(), range), 1);
  const auto around = mappings_in(child, {middle - 1, middle + kPageSize + 1});
  REQUIRE(around);
  REQUIRE_EQ(around->size(), 2);
  CHECK_EQ((*around)[0].end, middle);
  CHECK_EQ((*around)[1].start, middle + kPageSize);
  CHECK_EQ((*around)[1].protection, PROT_NONE);
  CHECK_FALSE((*around)[1].shared);
  const auto inside = mappings_in(child, {middle, middle + kPageSize});
  REQUIRE(inside);
  CHECK(inside->empty());
  const auto after = mapped_from(child, middle);
  REQUIRE(after);
  REQUIRE(*after);
  CHECK_EQ((*after)->start, middle + kPageSize);
  const auto covering = mapped_from(child, middle - 1);
  REQUIRE(covering);
  REQUIRE(*covering);
  CHECK_EQ((*covering)->end, middle);
  const auto nothing = mapped_from(child, (1ull << 47) - 1);
  REQUIRE(nothing);
  CHECK_FALSE(*nothing);
  kill(child, SIGKILL);
  int status = 0;
  CHECK(wait_for(child, status));
  for (const Address left : {middle - kPageSize, middle + kPageSize}) munmap(reinterpret_cast<void*>(left), kPageSize);
}

TEST_CASE("a unit's state survives encoding") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    UnitState state = random_state(random);
    const auto check_survives = [&](const Bytes& data) {
      Decoder in(data);
      UnitState read;
      read.zero_pages.resize(3);  // decode() replaces what is there
      REQUIRE(decode(in, read));
      CHECK(in.at_end());
      check_equal(state, read);
    };
    check_survives(encoded(state));
    check_survives(encoded_before(state));
    for (auto& thread : state.threads) thread.read_implies_exec = true;
    for (auto& process : state.processes) {
      for (auto& mapping : process.mappings) mapping.fork_advice = uint64_t{1} << MADV_WIPEONFORK;
    }
    check_survives(encoded(state));
  }
}

TEST_CASE("what CRIU has written of a process survives encoding") {
  UnitState state;
  for (uint32_t process : {3, 5}) state.processes.emplace_back().process = process;
  state.processes.back().files = {{"core-7.img", std::string("\0\1core", 6)}, {"files.img", ""}};
  const Bytes data = encoded(state);
  Decoder in(data);
  UnitState read;
  REQUIRE(decode(in, read));
  CHECK(read.processes.front().files.empty());
  const auto& files = read.processes.back().files;
  REQUIRE_EQ(files.size(), 2);
  CHECK_EQ(files[0].name, "core-7.img");
  CHECK_EQ(files[0].content, std::string("\0\1core", 6));
  CHECK_EQ(files[1].name, "files.img");
  CHECK_EQ(files[1].content, "");
}

TEST_CASE("a state that is cut short is refused") {
  std::mt19937_64 random(2);
  for (int round = 0; round < 20; ++round) {
    const UnitState state = random_state(random);
    const auto accepted = [](const Bytes& data) {
      size_t times = 0;
      for (size_t size = 0; size < data.size(); ++size) {
        Decoder in(std::span<const uint8_t>(data).first(size));
        UnitState read;
        times += decode(in, read);
      }
      return times;
    };
    CHECK_EQ(accepted(encoded(state)), 0);
    CHECK_EQ(accepted(encoded_before(state)), state.processes.empty() ? 0 : 2);  // it ended here up to versions 4 and 6
  }
}

TEST_CASE("a process has memory of its own or that of another") {
  UnitState state;
  ProcessState& process = state.processes.emplace_back();
  process.memory_of = 7;
  const auto accepted = [&] {
    const Bytes data = encoded_before(state);
    Decoder in(data);
    UnitState read;
    return decode(in, read);
  };
  CHECK(accepted());
  process.mappings.emplace_back();
  CHECK_FALSE(accepted());
}

TEST_CASE("random and damaged bytes are a state or refused") {
  std::mt19937_64 random(3);
  for (int round = 0; round < 3000; ++round) {
    const UnitState state = random_state(random);
    Bytes data = round % 2 ? encoded(state) : encoded_before(state);
    if (round % 3 == 0) {
      for (auto& byte : data) byte = static_cast<uint8_t>(random());
    } else {
      for (uint64_t flips = 1 + random() % 4; flips > 0; --flips) {
        data[random() % data.size()] ^= static_cast<uint8_t>(1 << random() % 8);
      }
    }
    Decoder in(data);
    UnitState read;
    if (!decode(in, read)) continue;
    for (const auto& process : read.processes) {
      for (const auto& m : process.mappings) {
        REQUIRE(m.start <= m.end);
        REQUIRE_EQ(m.start % kPageSize, 0);
      }
    }
    const Bytes again = encoded(read);
    Decoder once_more(again);
    UnitState same;
    REQUIRE(decode(once_more, same));
    check_equal(read, same);
  }
}

TEST_CASE("registers are the same in what a program can see") {
  user_regs_struct a{};
  a.rax = 1;
  a.rip = 0x400000;
  a.eflags = 0x202;
  user_regs_struct b = a;
  b.orig_rax = b.rcx = b.r11 = 99;
  b.eflags |= 0x100;  // TF
  CHECK(same_registers(a, b));
  for (auto member : {&user_regs_struct::rax, &user_regs_struct::rdi, &user_regs_struct::r15, &user_regs_struct::rsp,
                      &user_regs_struct::rip, &user_regs_struct::fs_base}) {
    user_regs_struct c = a;
    c.*member ^= 1;
    CHECK_FALSE(same_registers(a, c));
  }
  b.eflags |= 1;  // CF
  CHECK_FALSE(same_registers(a, b));
}

TEST_CASE("extended registers are the same in what a program can rely on") {
  constexpr size_t kSize = 2696;  // with AVX-512 and PKRU
  const auto same_but_for = [](size_t at, size_t size, size_t other_size) {
    Bytes a(size), b(other_size);
    a[at] = 1;
    return same_xstate(a, b) && same_xstate(b, a);
  };
  const struct {
    size_t first, last;
  } left_out[] = {{6, 23}, {464, 519}};  // FOP, FIP, FDP; software's bytes and XSTATE_BV
  for (size_t at = 0; at < kSize; ++at) {
    const bool is_left_out = std::any_of(std::begin(left_out), std::end(left_out),
                                         [&](const auto& range) { return range.first <= at && at <= range.last; });
    REQUIRE_EQ(same_but_for(at, kSize, kSize), is_left_out);
    constexpr size_t kCommon = 832;
    REQUIRE_EQ(same_but_for(at, kSize, kCommon), is_left_out || at >= kCommon);
  }
}

namespace {

// The numbers of processes that are children of this one, or that it traces.
std::set<pid_t> children() {
  std::set<pid_t> out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream status(entry.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with("PPid:") && !line.starts_with("TracerPid:")) continue;
      const std::string of = line.substr(line.find_last_of('\t') + 1);
      if (of != "0" && std::filesystem::exists("/proc/self/task/" + of)) out.insert(std::stoi(entry.path().filename()));
    }
  }
  return out;
}

// When this ends, there must be no children, running or unreaped, except those of before, such as the template of
// stubs. Orphans of a stub become children of this process.
class NothingLeft {
 public:
  NothingLeft() {
    REQUIRE(Stub::spawn());
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    before_ = children();
  }
  ~NothingLeft() {
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    CHECK(children() == before_);
  }
  NothingLeft(const NothingLeft&) = delete;
  NothingLeft& operator=(const NothingLeft&) = delete;

 private:
  std::set<pid_t> before_;
};

Stub spawned() {
  auto stub = Stub::spawn();
  REQUIRE_MESSAGE(stub, stub.error().message);
  return std::move(stub).value();
}

int64_t called(const Stub& stub, pid_t tid, long number, std::initializer_list<uint64_t> args = {}) {
  const auto result = stub.call(tid, number, args);
  REQUIRE_MESSAGE(result, result.error().message);
  return result.value();
}

// A thread's number in its own PID namespace.
pid_t own_number(pid_t tid) {
  std::ifstream status("/proc/" + std::to_string(tid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("NSpid:")) return std::stoi(line.substr(line.find_last_of('\t') + 1));
  }
  return -1;
}

Bytes pattern(size_t pages, uint8_t first) {
  Bytes out(pages * kPageSize);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint8_t>(first + i / kPageSize + i % 251);
  return out;
}

// Empty if it cannot be read.
Bytes memory_of(const Stub& stub, Address at, size_t pages) {
  Bytes out(pages * kPageSize);
  if (!stub.memory().read(at, out.data(), out.size())) return {};
  return out;
}

Bytes part(const Bytes& whole, size_t first_page, size_t pages) {
  const auto first = whole.begin() + static_cast<ptrdiff_t>(first_page * kPageSize);
  return Bytes(first, first + static_cast<ptrdiff_t>(pages * kPageSize));
}

}  // namespace

TEST_CASE("a stub has nothing mapped but the gate") {
  const NothingLeft nothing_left;
  const Stub stub = spawned();
  const auto mappings = read_mappings(stub.pid());
  REQUIRE(mappings);
  for (const auto& m : mappings.value()) {
    CHECK(m.start >= kGateStart);
    CHECK(m.end <= kGateEnd);
  }
  CHECK_EQ(vdso_address(stub.pid()), 0);
}

TEST_CASE("a stub makes syscalls and keeps its registers") {
  const NothingLeft nothing_left;
  const Stub stub = spawned();
  user_regs_struct before{};
  REQUIRE(get_regs(stub.pid(), before));
  before.rbx = 0x1122334455667788;
  before.rsp = 0x12340;
  REQUIRE(set_regs(stub.pid(), before));
  CHECK_EQ(called(stub, stub.pid(), SYS_getpid), own_number(stub.pid()));
  CHECK_EQ(called(stub, stub.pid(), SYS_close, {9999}), -EBADF);
  kill(stub.pid(), SIGINT);  // like a terminal's Ctrl-C
  CHECK_EQ(called(stub, stub.pid(), SYS_getpid), own_number(stub.pid()));
  user_regs_struct after{};
  REQUIRE(get_regs(stub.pid(), after));
  CHECK(same_registers(before, after));
}

TEST_CASE("a stub maps and unmaps memory") {
  const NothingLeft nothing_left;
  const Stub stub = spawned();
  constexpr Address kAt = 0x10000000;
  REQUIRE(stub.map_anonymous(stub.pid(), kAt, 2 * kPageSize, PROT_READ, MAP_PRIVATE));
  const Bytes data = pattern(2, 1);
  CHECK(stub.memory().write(kAt, data.data(), data.size()));
  CHECK(memory_of(stub, kAt, 2) == data);
  REQUIRE(stub.unmap(stub.pid(), kAt, kPageSize));
  CHECK(memory_of(stub, kAt, 1).empty());
  CHECK(memory_of(stub, kAt + kPageSize, 1) == part(data, 1, 1));

  const NamelessFile file(pattern(3, 50));
  REQUIRE(stub.map_file(stub.pid(), file.path(), kAt, kPageSize, PROT_READ, MAP_PRIVATE, 2 * kPageSize));
  CHECK(memory_of(stub, kAt, 1) == part(pattern(3, 50), 2, 1));
  const auto missing = stub.map_file(stub.pid(), "/nonexistent/file", kAt, kPageSize, PROT_READ, MAP_PRIVATE, 0);
  REQUIRE_FALSE(missing);
  CHECK_EQ(missing.error().message, "cannot map /nonexistent/file: No such file or directory");
  CHECK_FALSE(stub.map_anonymous(stub.pid(), kAt, 0, PROT_READ, MAP_PRIVATE));
}

TEST_CASE("a stub makes lists of calls that are longer than there is room for, and stops at the first that fails") {
  const Stub stub = spawned();
  constexpr Address kAt = 0x10000000;
  const NamelessFile one(pattern(1, 50)), two(pattern(1, 90));
  const auto descriptors = [&] {
    const std::filesystem::directory_iterator open("/proc/" + std::to_string(stub.pid()) + "/fd");
    return std::distance(begin(open), end(open));
  };
  const auto before = descriptors();
  StubCalls calls(stub, stub.pid());
  constexpr size_t kMappings = 200;
  for (size_t i = 0; i < kMappings; ++i) {
    const NamelessFile& file = i / 3 % 2 ? one : two;
    REQUIRE(calls.map_file(file.path(), kAt + i * kPageSize, kPageSize, PROT_READ, MAP_PRIVATE, 0));
  }
  REQUIRE(calls.run());
  for (size_t i = 0; i < kMappings; ++i) {
    CHECK(memory_of(stub, kAt + i * kPageSize, 1) == pattern(1, i / 3 % 2 ? 50 : 90));
  }
  CHECK_EQ(descriptors(), before);

  REQUIRE(calls.unmap(kAt, kPageSize));
  REQUIRE(calls.add("do the impossible", SYS_close, {99}));
  REQUIRE(calls.unmap(kAt + kPageSize, kPageSize));
  const auto made = calls.run();
  REQUIRE_FALSE(made);
  CHECK_EQ(made.error().message, "cannot do the impossible: Bad file descriptor");
  CHECK(memory_of(stub, kAt, 1).empty());
  CHECK_FALSE(memory_of(stub, kAt + kPageSize, 1).empty());
}

TEST_CASE("threads of a stub share its memory and end one by one") {
  const NothingLeft nothing_left;
  const Stub stub = spawned();
  const auto clone = [&] {
    const auto made = stub.add_thread(stub.pid());
    REQUIRE_MESSAGE(made, made.error().message);
    return made.value();
  };
  user_regs_struct regs{};
  REQUIRE(get_regs(stub.pid(), regs));
  regs.rbx = 77;
  REQUIRE(set_regs(stub.pid(), regs));
  const pid_t first = clone(), second = clone();
  CHECK_EQ(called(stub, first, SYS_gettid), own_number(first));
  CHECK_EQ(called(stub, first, SYS_getpid), own_number(stub.pid()));
  CHECK_EQ(called(stub, second, SYS_gettid), own_number(second));
  user_regs_struct inherited{};
  REQUIRE(get_regs(second, inherited));
  CHECK(same_registers(inherited, regs));
  REQUIRE(stub.map_anonymous(first, 0x10000000, kPageSize, PROT_READ, MAP_PRIVATE));
  CHECK(memory_of(stub, 0x10000000, 1) == Bytes(kPageSize));

  stub.end_thread(first);
  CHECK_FALSE(get_regs(first, regs));
  CHECK_FALSE(stub.call(first, SYS_getpid, {}));
  stub.end_thread(first);  // there is nothing left to end
  CHECK_EQ(called(stub, second, SYS_gettid), own_number(second));
  CHECK_EQ(called(stub, stub.pid(), SYS_gettid), own_number(stub.pid()));
}

TEST_CASE("a stub whose process was killed says so") {
  const NothingLeft nothing_left;
  const Stub stub = spawned();
  kill(stub.pid(), SIGKILL);
  CHECK_FALSE(stub.call(stub.pid(), SYS_getpid, {}));
}

TEST_CASE("however many stubs there are, of whatever thread, there is one filter") {
  const NothingLeft nothing_left;
  const size_t before = StubMaker::ours().templates_made();
  std::vector<std::thread> threads;
  std::atomic<int> answers = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 10; ++j) {
        const auto stub = Stub::spawn();
        answers += stub && stub->call(stub->pid(), SYS_getpid, {});
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK_EQ(answers, 40);
  CHECK_EQ(StubMaker::ours().templates_made(), before);
}

TEST_CASE("a stub runs on the processors of the thread that has spawned it") {
  cpu_set_t all;
  REQUIRE_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &all)) continue;
    bool there = false;
    std::thread([&] {
      cpu_set_t one, its;
      CPU_ZERO(&one);
      CPU_SET(processor, &one);
      sched_setaffinity(0, sizeof one, &one);
      const auto stub = Stub::spawn();
      there = stub && sched_getaffinity(stub->pid(), sizeof its, &its) == 0 && CPU_EQUAL(&one, &its);
    }).join();
    CHECK(there);
  }
  cpu_set_t its;
  const Stub stub = spawned();
  CHECK_EQ(sched_getaffinity(stub.pid(), sizeof its, &its), 0);
  CHECK(CPU_EQUAL(&all, &its));
}

TEST_CASE("another tier has another filter") {
  const size_t before = StubMaker::ours().templates_made();
  const StubTier tier{0x6f000100, {0x6f000000, 0x6f200000}, 0x6f001230};
  CHECK(Stub::spawn(tier));
  CHECK(Stub::spawn());
  CHECK(Stub::spawn(tier));
  CHECK_EQ(StubMaker::ours().templates_made(), before + 1);
}

TEST_CASE("stubs are made after the process that they are forked from was killed") {
  std::set<pid_t> killed;
  {
    const Stub stub = spawned();
    for (const pid_t pid : children()) {
      if (pid == stub.pid()) continue;
      kill(pid, SIGKILL);
      killed.insert(pid);
    }
    CHECK_EQ(called(stub, stub.pid(), SYS_getpid), own_number(stub.pid()));
  }
  CHECK_FALSE(killed.empty());
  const Stub stub = spawned();
  CHECK_EQ(called(stub, stub.pid(), SYS_getpid), own_number(stub.pid()));
}

TEST_CASE("a child of a stub has a copy of its memory") {
  const NothingLeft nothing_left;
  const Stub parent = spawned();
  constexpr Address kAt = 0x10000000;
  REQUIRE(parent.map_anonymous(parent.pid(), kAt, kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE));
  const Bytes data = pattern(1, 7), other = pattern(1, 8);
  REQUIRE(parent.memory().write(kAt, data.data(), data.size()));
  const auto child = parent.fork(parent.pid(), CLONE_PARENT);
  REQUIRE_MESSAGE(child, child.error().message);
  REQUIRE(parent.memory().write(kAt, other.data(), other.size()));
  CHECK(memory_of(child.value(), kAt, 1) == data);
  CHECK_EQ(called(child.value(), child->pid(), SYS_getpid), own_number(child->pid()));
  // Each stub is sent its own files.
  const NamelessFile one(pattern(1, 50)), two(pattern(1, 90));
  constexpr Address kFile = 0x20000000;
  StubCalls first(parent, parent.pid()), second(child.value(), child->pid());
  REQUIRE(first.map_file(one.path(), kFile, kPageSize, PROT_READ, MAP_PRIVATE, 0));
  REQUIRE(second.map_file(two.path(), kFile, kPageSize, PROT_READ, MAP_PRIVATE, 0));
  REQUIRE(second.run());
  REQUIRE(first.run());
  CHECK(memory_of(parent, kFile, 1) == pattern(1, 50));
  CHECK(memory_of(child.value(), kFile, 1) == pattern(1, 90));
}

TEST_CASE("a stub has one descriptor, its socket") {
  const Fd inherited(open("/dev/null", O_RDONLY));  // not close-on-exec
  const Stub stub = spawned();
  std::vector<std::string> targets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(stub.pid()) + "/fd"))
    targets.push_back(std::filesystem::read_symlink(entry.path()));
  REQUIRE_EQ(targets.size(), 1);
  CHECK(targets[0].starts_with("socket:"));
}

TEST_CASE("a stub and what it makes are in namespaces of their own") {
  // The kernel does not make user namespaces in a changed root (user_namespaces(7)).
  struct statx root {};
  REQUIRE_EQ(statx(AT_FDCWD, "/", 0, 0, &root), 0);
  if (!(root.stx_attributes & STATX_ATTR_MOUNT_ROOT)) return;
  REQUIRE_EQ(StubNamespaces::ours().missing(), "");
  const Stub stub = spawned();
  const auto thread = stub.add_thread(stub.pid());
  REQUIRE(thread);
  const auto child = stub.fork(stub.pid(), 0);
  REQUIRE(child);
  for (const pid_t tid : {stub.pid(), *thread, child->pid()}) {
    const std::string process = "/proc/" + std::to_string(tid);
    for (const char* kind : {"user", "pid", "mnt", "net", "ipc"}) {
      const std::string link = std::string("/ns/") + kind;
      CHECK(std::filesystem::read_symlink(process + link) != std::filesystem::read_symlink("/proc/self" + link));
    }
    CHECK(std::filesystem::is_empty(process + "/root"));
    std::ifstream status(process + "/status");
    const std::string text{std::istreambuf_iterator<char>(status), {}};
    CHECK(text.find("CapEff:\t0000000000000000\n") != std::string::npos);
    CHECK(text.find("CapPrm:\t0000000000000000\n") != std::string::npos);
  }
}

TEST_CASE("a call that another code than the stub's own makes in its place is not made") {
  const NothingLeft nothing_left;
  const Stub stub = spawned();
  constexpr Address kCode = kStubSyscallEnd - 2;
  const auto put = [&](std::initializer_list<uint8_t> code) {
    REQUIRE(stub.memory().write(kCode, code.begin(), code.size()));
  };
  const auto refused = [&] {
    const auto made = stub.call(stub.pid(), SYS_getpid, {});
    return !made && made.error().status == Status::damaged;
  };
  CHECK_EQ(called(stub, stub.pid(), SYS_getpid), own_number(stub.pid()));
  SUBCASE("another number") { put({0xb0, SYS_getppid, 0x0f, 0x05, 0xcc}); }  // mov $, %al; syscall; int3
  SUBCASE("other arguments") { put({0x48, 0xff, 0xc7, 0x0f, 0x05, 0xcc}); }  // inc %rdi; syscall; int3
  SUBCASE("at another place") { put({0x90, 0x0f, 0x05, 0xcc}); }             // nop; syscall; int3
  SUBCASE("none, but a fault") { put({0x0f, 0x0b}); }                        // ud2
  CHECK(refused());
}

TEST_CASE("a stub can be handed over to another thread") {
  const NothingLeft nothing_left;
  Stub stub = spawned();
  const pid_t expected = stub.pid();
  auto released = std::move(stub).hand_over();
  REQUIRE(released);
  CHECK_EQ(released->pid, expected);
  int64_t answers[3] = {};
  std::string error;
  std::thread([&] {
    auto taken = Stub::take_over(std::move(*released));
    if (!taken) {
      error = taken.error().message;
      return;
    }
    answers[0] = taken->call(expected, SYS_getpid, {}).value() - own_number(expected);
    const auto thread = taken->add_thread(expected);
    if (thread) answers[1] = taken->call(thread.value(), SYS_gettid, {}).value() - own_number(thread.value());
    answers[2] = taken->call(expected, SYS_close, {9999}).value();
  }).join();
  CHECK_EQ(error, "");
  CHECK_EQ(answers[0], 0);
  CHECK_EQ(answers[1], 0);
  CHECK_EQ(answers[2], -EBADF);
  // The thread's stub has ended and reaped the process.
  const auto gone = Stub::take_over({expected, Fd(), Fd()});
  REQUIRE_FALSE(gone);
  CHECK_EQ(gone.error().message, "a forked process ended before it could be taken over");
}

namespace {

constexpr Address kAnonymous = 0x10000000, kGuarded = 0x10010000, kFile = 0x20000000, kShared = 0x30000000,
                  kSharedElsewhere = 0x50000000, kStack = 0x7ffd00000000;
constexpr uint64_t kFileId = 5, kObject = 3;

Mapping mapping(Address start, uint64_t pages, int protection) {
  Mapping m;
  m.start = start;
  m.end = start + pages * kPageSize;
  m.protection = protection;
  return m;
}

// Two processes with every property that a mapping can have; the first one has two threads.
UnitState sample_state() {
  Mapping file = mapping(kFile, 3, PROT_READ | PROT_EXEC);
  file.file = kFileId;
  file.offset = kPageSize;
  Mapping shared = mapping(kShared, 2, PROT_READ | PROT_WRITE);
  shared.shared = true;
  shared.shared_object = kObject;
  Mapping shared_tail = mapping(kSharedElsewhere, 2, PROT_READ);
  shared_tail.shared = true;
  shared_tail.shared_object = kObject;
  shared_tail.offset = kPageSize;
  Mapping stack = mapping(kStack, 2, PROT_READ | PROT_WRITE);
  stack.name = "[stack]";
  UnitState state;
  state.processes.push_back(
      {1,
       100,
       0x1000,
       kNoLimit,
       {mapping(kAnonymous, 4, PROT_READ | PROT_WRITE), mapping(kGuarded, 1, PROT_NONE), file, shared, stack},
       {},
       {},
       {}});
  state.processes.push_back({4, 101, 0x2000, kNoLimit, {mapping(kAnonymous, 1, PROT_READ), shared_tail}, {}, {}, {}});
  state.zero_pages = {{1, kFile + 2 * kPageSize}};
  return state;
}

void add_thread(UnitState& state, uint32_t thread, uint32_t process, const user_regs_struct& like) {
  ThreadState added{thread, process, false, false, like, {}};
  added.regs.rax = 1000 + thread;
  added.regs.r12 = 2000 + thread;
  added.regs.rip = kFile + thread;
  added.regs.rsp = kStack + 64 * thread;
  added.regs.fs_base = kAnonymous + 8 * thread;
  added.regs.orig_rax = 0;  // as in read(2): must not be taken for a call to restart
  state.threads.push_back(added);
}

// Stored pages in memory, each once, in the order in which they were added.
class Pages {
 public:
  void add(uint32_t process, Address start, const Bytes& contents) {
    for (size_t at = 0; at < contents.size(); at += kPageSize) {
      pages_.push_back({process, start + at, part(contents, at / kPageSize, 1)});
    }
  }
  ReadPages reader() const {
    return [this](const FillPages& fill) -> Result<void> {
      std::vector<PageRef> refs;
      for (const auto& page : pages_) refs.push_back({page.process, page.address, page.data.data()});
      const auto all = std::span<const PageRef>(refs);
      TRY(fill(all.first(refs.size() / 2)));
      return fill(all.subspan(refs.size() / 2));
    };
  }
  std::vector<PageRef> list() const {
    std::vector<PageRef> refs;
    for (const auto& page : pages_) refs.push_back({page.process, page.address});
    return refs;
  }

 private:
  struct Page {
    uint32_t process;
    Address address;
    Bytes data;
  };
  std::vector<Page> pages_;
};

FilePath only_file(const NamelessFile& file) {
  return [&file](uint64_t id) -> Result<std::string> {
    if (id != kFileId) return Error{"no such file"};
    return file.path();
  };
}

FilePath no_files() {
  return [](uint64_t) -> Result<std::string> { return Error{"no such file"}; };
}

}  // namespace

TEST_CASE("a unit restored has the memory, the threads and the registers of its state") {
  const NothingLeft nothing_left;
  const Bytes on_disk = pattern(4, 100);
  const NamelessFile file(on_disk);
  UnitState state = sample_state();
  {
    const Stub model = spawned();
    user_regs_struct regs{};
    REQUIRE(get_regs(model.pid(), regs));
    add_thread(state, 7, 1, regs);
    add_thread(state, 2, 4, regs);
    add_thread(state, 9, 1, regs);
    state.threads[2].xstate = get_xstate(model.pid());
  }
  Bytes& xstate = state.threads[2].xstate;
  REQUIRE(xstate.size() > 520);
  xstate[512] |= 2;                                                                  // XSTATE_BV: SSE
  for (size_t i = 0; i < 16; ++i) xstate[160 + i] = static_cast<uint8_t>(0xa0 + i);  // xmm0

  Pages pages;
  pages.add(1, kAnonymous, pattern(1, 1));
  pages.add(1, kAnonymous + 2 * kPageSize, pattern(2, 2));
  pages.add(1, kGuarded, pattern(1, 3));
  pages.add(1, kFile + kPageSize, pattern(1, 4));
  pages.add(1, kShared, pattern(2, 5));
  pages.add(1, kStack, pattern(2, 6));
  pages.add(4, kAnonymous, pattern(1, 7));
  pages.add(4, kSharedElsewhere + kPageSize, pattern(1, 8));
  auto unit = restore(state, pages.reader(), only_file(file));
  REQUIRE_MESSAGE(unit, unit.error().message);
  REQUIRE_EQ(unit->processes.size(), 2);
  CHECK_EQ(unit->processes.at(1).brk, 0x1000);
  CHECK_EQ(unit->processes.at(4).brk, 0x2000);
  const Stub& first = unit->processes.at(1).stub;
  const Stub& second = unit->processes.at(4).stub;

  CHECK(memory_of(first, kAnonymous, 1) == pattern(1, 1));
  CHECK(memory_of(first, kAnonymous + kPageSize, 1) == Bytes(kPageSize));
  CHECK(memory_of(first, kAnonymous + 2 * kPageSize, 2) == pattern(2, 2));
  CHECK(memory_of(first, kGuarded, 1) == pattern(1, 3));
  CHECK(memory_of(first, kFile, 1) == part(on_disk, 1, 1));  // never written: the file's, from the offset on
  CHECK(memory_of(first, kFile + kPageSize, 1) == pattern(1, 4));
  CHECK(memory_of(first, kFile + 2 * kPageSize, 1) == Bytes(kPageSize));  // written and zero
  CHECK(memory_of(first, kShared, 2) == pattern(2, 5));
  CHECK(memory_of(first, kStack, 2) == pattern(2, 6));
  CHECK(memory_of(second, kAnonymous, 1) == pattern(1, 7));
  CHECK(memory_of(second, kSharedElsewhere, 1) == part(pattern(2, 5), 1, 1));
  CHECK(memory_of(second, kSharedElsewhere + kPageSize, 1) == pattern(1, 8));
  Bytes untouched(on_disk.size());
  CHECK_EQ(pread(file.fd.get(), untouched.data(), untouched.size(), 0), static_cast<ssize_t>(untouched.size()));
  CHECK(untouched == on_disk);

  // Shared memory is one object: each process sees what the other one writes. A file's copy is private.
  const uint64_t news = 0x0123456789abcdef;
  uint64_t seen = 0;
  REQUIRE(first.memory().put(kShared + kPageSize + 16, news));
  CHECK(second.memory().get(kSharedElsewhere + 16, seen));
  CHECK_EQ(seen, news);
  REQUIRE(first.memory().put(kFile, news));
  CHECK_EQ(pread(file.fd.get(), &seen, sizeof seen, kPageSize), 8);
  CHECK_FALSE(seen == news);

  for (const auto& process : state.processes) {
    const auto found = read_mappings(unit->processes.at(process.process).stub.pid());
    REQUIRE(found);
    for (const auto& expected : process.mappings) {
      CAPTURE(expected.start);
      const auto it =
          std::find_if(found->begin(), found->end(), [&](const Mapping& m) { return m.start == expected.start; });
      REQUIRE(it != found->end());
      CHECK_EQ(it->end, expected.end);
      CHECK_EQ(it->protection, expected.protection);
      CHECK_EQ(it->shared, expected.shared);
    }
  }

  REQUIRE_EQ(unit->threads.size(), 3);
  CHECK_EQ(unit->threads.at(7), first.pid());
  CHECK_EQ(unit->threads.at(2), second.pid());
  CHECK_EQ(called(first, unit->threads.at(9), SYS_getpid), own_number(first.pid()));
  for (const auto& thread : state.threads) {
    user_regs_struct regs{};
    REQUIRE(get_regs(unit->threads.at(thread.thread), regs));
    CHECK(same_registers(regs, thread.regs));
    CHECK_EQ(regs.orig_rax, ~0ull);
  }
  const Bytes restored = get_xstate(unit->threads.at(9));
  REQUIRE_EQ(restored.size(), xstate.size());
  CHECK(std::equal(restored.begin() + 160, restored.begin() + 176, xstate.begin() + 160));
}

TEST_CASE("a restored stack grows downwards") {
  const NothingLeft nothing_left;
  UnitState state;
  Mapping stack = mapping(kStack, 1, PROT_READ | PROT_WRITE);
  stack.name = "[stack]";
  state.processes.push_back({0, 100, 0, kNoLimit, {stack, mapping(kAnonymous, 1, PROT_READ | PROT_WRITE)}, {}, {}, {}});
  auto unit = restore(state, Pages().reader(), no_files());
  REQUIRE_MESSAGE(unit, unit.error().message);
  const Stub& stub = unit->processes.at(0).stub;
  constexpr uint64_t kSize = 64;
  CHECK(called(stub, stub.pid(), SYS_uname, {kStack - kPageSize}) == 0);
  CHECK_FALSE(memory_of(stub, kStack - kPageSize, 1).empty());
  CHECK_EQ(called(stub, stub.pid(), SYS_getcwd, {kAnonymous - kSize, kSize}), -EFAULT);
}

TEST_CASE("a process that runs on another's memory is restored with that") {
  UnitState state;
  state.processes.push_back({0, 100, 0, kNoLimit, {mapping(kAnonymous, 1, PROT_READ | PROT_WRITE)}, {}, {}, {}});
  state.processes.push_back({1, 101, 0, kNoLimit, {}, {}, 0, {}});
  Encoder out;
  encode(state, out);
  const Bytes encoded = out.take();
  Decoder in(encoded);
  UnitState decoded;
  REQUIRE(decode(in, decoded));
  CHECK(decoded.memory_of(0) == 0);
  CHECK(decoded.memory_of(1) == 0);
  auto unit = restore(decoded, Pages().reader(), no_files());
  REQUIRE(unit);
  const uint64_t written = 12345;
  uint64_t found = 0;
  REQUIRE(unit->processes.at(0).stub.memory().put(kAnonymous, written));
  REQUIRE(unit->processes.at(1).stub.memory().get(kAnonymous, found));
  CHECK(found == written);
}

TEST_CASE("adjacent pages of adjacent mappings are told apart") {
  const NothingLeft nothing_left;
  UnitState state;
  Mapping shared = mapping(kAnonymous + kPageSize, 1, PROT_READ | PROT_WRITE);
  shared.shared = true;
  shared.shared_object = kObject;
  shared.offset = 2 * kPageSize;
  state.processes.push_back(
      {0,
       100,
       0,
       kNoLimit,
       {mapping(kAnonymous, 1, PROT_READ), shared, mapping(kAnonymous + 2 * kPageSize, 300, PROT_READ)},
       {},
       {},
       {}});
  const Bytes contents = pattern(302, 1);  // more than the restorer writes at once
  Pages pages;
  pages.add(0, kAnonymous, contents);
  auto unit = restore(state, pages.reader(), no_files());
  REQUIRE_MESSAGE(unit, unit.error().message);
  CHECK(memory_of(unit->processes.at(0).stub, kAnonymous, 302) == contents);
}

namespace {

// Makes processes that hold what is put into them nowhere but here.
class NotingEngine final : public RestoreEngine {
 public:
  struct Noted {
    uint32_t process = 0;
    size_t threads = 0;
    std::vector<Address> announced, filled;
  };
  Result<std::unique_ptr<ProcessMaker>> begin(const ProcessPlan& plan) override {
    noted.push_back({plan.state.process, plan.threads, plan.pages, {}});
    return std::unique_ptr<ProcessMaker>(new Maker(noted.back()));
  }

  std::deque<Noted> noted;

 private:
  class Maker final : public ProcessMaker {
   public:
    explicit Maker(Noted& noted) : noted_(noted) {}
    Result<void> fill(std::span<const MemoryPiece> pieces) override {
      for (const MemoryPiece& piece : pieces) {
        for (size_t at = 0; at < piece.size; at += kPageSize) noted_.filled.push_back(piece.address + at);
      }
      return {};
    }
    Result<Made> finish() override {
      ASSIGN_OR_RETURN(Stub stub, Stub::spawn());
      std::vector<pid_t> threads{stub.pid()};
      while (threads.size() < noted_.threads) {
        ASSIGN_OR_RETURN(const pid_t tid, stub.add_thread(stub.pid()));
        threads.push_back(tid);
      }
      return Made{std::move(stub), std::move(threads)};
    }

   private:
    Noted& noted_;
  };
};

}  // namespace

TEST_CASE("an engine is told a process's own pages before they come, and makes its threads") {
  const NothingLeft nothing_left;
  const NamelessFile file(pattern(4, 100));
  UnitState state = sample_state();
  user_regs_struct regs{};
  {
    const Stub model = spawned();
    REQUIRE(get_regs(model.pid(), regs));
  }
  add_thread(state, 7, 1, regs);
  add_thread(state, 9, 1, regs);
  add_thread(state, 2, 4, regs);
  Pages pages;
  pages.add(1, kAnonymous + 2 * kPageSize, pattern(2, 2));
  pages.add(1, kFile + kPageSize, pattern(1, 4));
  pages.add(1, kShared, pattern(2, 5));
  pages.add(4, kAnonymous, pattern(1, 7));
  NotingEngine engine;
  const auto unit = restore(state, pages.reader(), only_file(file), {}, &engine, pages.list());
  REQUIRE_MESSAGE(unit, unit.error().message);
  REQUIRE_EQ(engine.noted.size(), 2);
  for (auto& noted : engine.noted) {
    std::sort(noted.filled.begin(), noted.filled.end());
    CHECK(noted.announced == noted.filled);
  }
  CHECK_EQ(engine.noted[0].process, 1);
  CHECK_EQ(engine.noted[0].threads, 2);
  // Those in memory that others share are not its own; the page of the file that is zero is.
  std::vector<Address> own{kAnonymous + 2 * kPageSize, kAnonymous + 3 * kPageSize, kFile + kPageSize,
                           kFile + 2 * kPageSize};
  std::sort(own.begin(), own.end());
  CHECK(engine.noted[0].announced == own);
  CHECK(engine.noted[1].announced == std::vector<Address>{kAnonymous});
  CHECK_EQ(unit->threads.at(7), unit->processes.at(1).stub.pid());
  CHECK_NE(unit->threads.at(9), unit->threads.at(7));
  CHECK_EQ(unit->threads.at(2), unit->processes.at(4).stub.pid());
}

TEST_CASE("an image that contradicts itself is damage") {
  const NothingLeft nothing_left;
  UnitState state;
  state.processes.push_back({0, 100, 0, kNoLimit, {mapping(kAnonymous, 1, PROT_READ)}, {}, {}, {}});
  Pages pages;
  SUBCASE("a page outside every mapping") { pages.add(0, kAnonymous + kPageSize, pattern(1, 1)); }
  SUBCASE("a page that begins in a mapping and goes on behind it") { pages.add(0, kAnonymous, pattern(2, 1)); }
  SUBCASE("a page of no process") { pages.add(1, kAnonymous, pattern(1, 1)); }
  SUBCASE("a zero page outside every mapping") { state.zero_pages = {{0, kAnonymous - kPageSize}}; }
  SUBCASE("a thread of no process") { state.threads.push_back({0, 3, false, false, {}, {}}); }
  SUBCASE("a process twice") { state.processes.push_back(state.processes.front()); }
  SUBCASE("a thread twice") { state.threads.assign(2, {0, 0, false, false, {}, {}}); }
  SUBCASE("a process with mappings that runs on another's memory, and a page in them") {
    state.processes.push_back({1, 101, 0, kNoLimit, {mapping(kAnonymous, 1, PROT_READ)}, {}, 0, {}});
    pages.add(1, kAnonymous, pattern(1, 1));
  }
  const auto unit = restore(state, pages.reader(), no_files());
  REQUIRE_FALSE(unit);
  CHECK_EQ(unit.error().status, Status::damaged);
}

TEST_CASE("what the environment refuses during a restore is passed on") {
  const NothingLeft nothing_left;
  UnitState state;
  state.processes.push_back({0, 100, 0, kNoLimit, {mapping(kAnonymous, 1, PROT_READ)}, {}, {}, {}});
  SUBCASE("a page that cannot be read") {
    const auto unit = restore(
        state, [](const FillPages&) -> Result<void> { return Error{"unreadable"}; }, no_files());
    REQUIRE_FALSE(unit);
    CHECK_EQ(unit.error().message, "unreadable");
  }
  SUBCASE("a file that is missing") {
    state.processes[0].mappings[0].file = kFileId;
    const auto unit = restore(state, Pages().reader(), no_files());
    REQUIRE_FALSE(unit);
    CHECK_EQ(unit.error().message, "no such file");
  }
}

}  // namespace redrive::restore_test
