// Mappings of all kinds, each compared with a model of its contents.
#include <linux/futex.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "program.h"

namespace {

constexpr size_t kPage = 4096;

unsigned char* map(size_t pages, int flags, int fd = -1, int protection = PROT_READ | PROT_WRITE, off_t offset = 0) {
  return static_cast<unsigned char*>(MUST(mmap(nullptr, pages * kPage, protection, flags, fd, offset)));
}

// Private memory that is written, protected, given back, moved and grown at random.
uint64_t private_pages(Actor& actor) {
  size_t pages = static_cast<size_t>(actor.random.between(4, 64));
  unsigned char* base = map(pages, MAP_PRIVATE | MAP_ANONYMOUS);
  std::vector<unsigned char> model(pages);  // what each page is filled with
  const int rounds = actor.random.between(5, 40);
  for (int i = 0; i < rounds; i++) {
    const size_t from = actor.random.next() % pages,
                 count = 1 + actor.random.next() % std::min<size_t>(pages - from, 8);
    unsigned char* at = base + from * kPage;
    switch (actor.random.below(6)) {
      case 0:
        MUST(madvise(at, count * kPage, MADV_DONTNEED));
        std::fill_n(model.begin() + static_cast<long>(from), count, 0);
        break;
      case 1: {
        const size_t grown = pages + static_cast<size_t>(actor.random.between(1, 8));
        void* moved = mremap(base, pages * kPage, grown * kPage, MREMAP_MAYMOVE);
        actor.note(reinterpret_cast<uint64_t>(moved));
        if (moved == MAP_FAILED) {
          CHECK(errno == EFAULT);  // the kernel has not merged what earlier rounds split
          moved = map(grown, MAP_PRIVATE | MAP_ANONYMOUS);
          memcpy(moved, base, pages * kPage);
          MUST(munmap(base, pages * kPage));
        }
        base = static_cast<unsigned char*>(moved);
        model.resize(pages = grown);
        break;
      }
      case 2:
        MUST(mmap(at, count * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
        std::fill_n(model.begin() + static_cast<long>(from), count, 0);
        break;
      case 3:
        MUST(mprotect(at, count * kPage, PROT_NONE));
        MUST(mprotect(at, count * kPage, PROT_READ | PROT_WRITE));
        break;
      case 4:
        if (pages > 8) {
          MUST(munmap(base + (pages - 2) * kPage, 2 * kPage));
          model.resize(pages -= 2);
        }
        break;
      default:
        for (size_t page = from; page < from + count; page++) {
          model[page] = static_cast<unsigned char>(actor.random.next() | 1);
          memset(base + page * kPage, model[page], kPage);
        }
    }
  }
  actor.note(reinterpret_cast<uint64_t>(base));
  for (size_t page = 0; page < pages; page++)
    CHECK(base[page * kPage] == model[page] && base[page * kPage + kPage - 1] == model[page]);
  MUST(munmap(base, pages * kPage));
  return hash_of(model.data(), model.size());
}

// Writes that fault: the handler makes the page writable.
uint64_t faults(Actor& actor) {
  const size_t pages = static_cast<size_t>(actor.random.between(1, 20));
  unsigned char* base = map(pages, MAP_PRIVATE | MAP_ANONYMOUS, -1, actor.random.coin() ? PROT_READ : PROT_NONE);
  fault_range = {base, pages * kPage, 0};
  for (size_t page = 0; page < pages; page++) {
    base[page * kPage + actor.random.next() % kPage] = static_cast<unsigned char>(page + 1);
    if (actor.random.below(4) == 0) sched_yield();
  }
  CHECK(fault_range.faults == static_cast<int>(pages));
  actor.note(hash_of(base, pages * kPage));
  fault_range = {};
  MUST(munmap(base, pages * kPage));
  return pages;
}

// Anonymous shared memory, memfd, a file or a System V segment.
struct Shared {
  unsigned char* base = nullptr;
  size_t pages = 0;
  int fd = -1;       // of files
  int segment = -1;  // of System V
  void release() const {
    segment >= 0 ? MUST(shmdt(base)) : MUST(munmap(base, pages * kPage));
    if (fd >= 0) close(fd);
  }
};

Shared make_shared(Actor& actor, int kind) {
  Shared made;
  made.pages = static_cast<size_t>(actor.random.between(1, 16));
  if (kind == 0) {
    made.base = map(made.pages, MAP_SHARED | MAP_ANONYMOUS);
  } else if (kind == 1) {
    made.segment = MUST(shmget(IPC_PRIVATE, made.pages * kPage, IPC_CREAT | 0600));
    made.base = static_cast<unsigned char*>(MUST(shmat(made.segment, nullptr, 0)));
    MUST(shmctl(made.segment, IPC_RMID, nullptr));
  } else {
    const std::string name = actor.file_name("shared");
    made.fd = kind == 2 ? MUST(memfd_create("random", MFD_CLOEXEC))
                        : MUST(open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (kind == 3 && actor.random.coin()) unlink(name.c_str());
    MUST(ftruncate(made.fd, static_cast<off_t>(made.pages * kPage)));
    made.base = map(made.pages, MAP_SHARED, made.fd);
  }
  return made;
}

void wait_for_turn(Actor& actor, std::atomic<uint32_t>& turn, uint32_t mine) {
  for (uint32_t now = turn; now != mine; now = turn) {
    const long result = syscall(SYS_futex, &turn, FUTEX_WAIT, now, nullptr, nullptr, 0);
    actor.note(static_cast<uint64_t>(result));
    CHECK(result == 0 || errno == EAGAIN || errno == EINTR);
  }
}

void give_turn(std::atomic<uint32_t>& turn, uint32_t next) {
  turn = next;
  MUST(syscall(SYS_futex, &turn, FUTEX_WAKE, 9, nullptr, nullptr, 0));
}

// Parent and child write in turns, and each checks what the other one wrote.
uint64_t shared_turns(Actor& actor) {
  const Shared shared = make_shared(actor, actor.random.below(4));
  auto& turn = *new (shared.base) std::atomic<uint32_t>(0);
  const uint32_t rounds = static_cast<uint32_t>(actor.random.between(1, 15));
  unsigned char* data = shared.base + 64;
  const size_t size = shared.pages * kPage - 64;
  const auto play = [&](uint32_t first) {
    Actor who = actor;
    for (uint32_t i = first; i < 2 * rounds; i += 2) {
      wait_for_turn(who, turn, i);
      if (i > 0) CHECK(data[0] == static_cast<unsigned char>(i - 1) && memcmp(data, data + 1, size - 1) == 0);
      memset(data, static_cast<int>(i & 255), size);
      give_turn(turn, i + 1);
    }
    return 0;
  };
  const pid_t child = start_child([&] { return play(1); });
  play(0);
  wait_for_turn(actor, turn, 2 * rounds);
  CHECK(data[size - 1] == static_cast<unsigned char>(2 * rounds - 1));
  expect_exit(actor, child, 0);
  shared.release();
  return rounds;
}

// A file seen through a mapping, through a second one for reading, and by calls.
uint64_t shared_file(Actor& actor) {
  Shared shared = make_shared(actor, actor.random.between(2, 3));
  const bool by_name = actor.random.coin();
  const int reader =
      by_name ? MUST(open(("/proc/self/fd/" + std::to_string(shared.fd)).c_str(), O_RDONLY | O_CLOEXEC)) : shared.fd;
  unsigned char* seen = map(shared.pages, MAP_SHARED, reader, PROT_READ);
  std::vector<unsigned char> model(shared.pages * kPage), buffer(6000);
  const int rounds = actor.random.between(4, 40);
  for (int i = 0; i < rounds; i++) {
    const size_t at = actor.random.next() % model.size();
    const size_t size = std::min(model.size() - at, 1 + actor.random.next() % buffer.size());
    const uint64_t seed = actor.random.next();
    for (size_t k = 0; k < size; k++) buffer[k] = pattern(seed, k);
    switch (actor.random.below(5)) {
      case 0:
        memcpy(shared.base + at, buffer.data(), size);
        memcpy(&model[at], buffer.data(), size);
        break;
      case 1:
        CHECK(pwrite(shared.fd, buffer.data(), size, static_cast<off_t>(at)) == static_cast<ssize_t>(size));
        memcpy(&model[at], buffer.data(), size);
        break;
      case 2:
        CHECK(pread(reader, buffer.data(), size, static_cast<off_t>(at)) == static_cast<ssize_t>(size));
        CHECK(memcmp(buffer.data(), &model[at], size) == 0);
        break;
      case 3:
        CHECK(memcmp(seen + at, &model[at], size) == 0 && memcmp(shared.base + at, &model[at], size) == 0);
        break;
      default: {
        const size_t grown = shared.pages + static_cast<size_t>(actor.random.between(1, 3));
        MUST(ftruncate(shared.fd, static_cast<off_t>(grown * kPage)));
        shared.base =
            static_cast<unsigned char*>(MUST(mremap(shared.base, shared.pages * kPage, grown * kPage, MREMAP_MAYMOVE)));
        MUST(munmap(seen, shared.pages * kPage));
        seen = map(grown, MAP_SHARED, reader, PROT_READ);
        shared.pages = grown;
        model.resize(grown * kPage);
      }
    }
  }
  CHECK(memcmp(seen, model.data(), model.size()) == 0);
  MUST(munmap(seen, model.size()));
  if (by_name) close(reader);
  shared.release();
  return hash_of(model.data(), model.size());
}

// The parent sees what a child does to a mapping if it is shared, and does not if it is private.
uint64_t inherited(Actor& actor) {
  const Shared shared = make_shared(actor, actor.random.below(4));
  const std::string name = actor.file_name("inherited");
  const int fd = MUST(open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  std::vector<unsigned char> data(3 * kPage);
  fill_pattern(data, 5);
  write_fully(actor, fd, data.data(), data.size());
  unsigned char* own = map(3, MAP_PRIVATE, fd);
  own[kPage] = 17;
  const auto value = static_cast<unsigned char>(actor.random.next());
  run_in_child(actor, [&] {
    CHECK(own[kPage] == 17 && own[2 * kPage] == data[2 * kPage]);
    memset(own, 99, kPage);
    memset(shared.base, value, shared.pages * kPage);
    if (value % 2) MUST(mprotect(shared.base, kPage, PROT_READ));
    return 0;
  });
  CHECK(own[0] == data[0] && own[kPage] == 17 && memcmp(own + 2 * kPage, &data[2 * kPage], kPage) == 0);
  CHECK(shared.base[0] == value && shared.base[shared.pages * kPage - 1] == value);
  MUST(munmap(own, 3 * kPage));
  close(fd), unlink(name.c_str());
  shared.release();
  return value;
}

// The same object mapped twice; one mapping is partly removed, protected and restored.
uint64_t two_views(Actor& actor) {
  const int fd = MUST(memfd_create("views", MFD_CLOEXEC));
  const size_t pages = static_cast<size_t>(actor.random.between(3, 12));
  MUST(ftruncate(fd, static_cast<off_t>(pages * kPage)));
  unsigned char* first = map(pages, MAP_SHARED, fd);
  unsigned char* second = map(pages, MAP_SHARED, fd);
  for (int i = actor.random.between(2, 12); i > 0; i--) {
    const size_t page = actor.random.next() % pages;
    first[page * kPage + 7] = static_cast<unsigned char>(i);
    CHECK(second[page * kPage + 7] == static_cast<unsigned char>(i));
    unsigned char* at = second + page * kPage;
    switch (actor.random.below(3)) {
      case 0:
        MUST(munmap(at, kPage));
        CHECK(mmap(at, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, static_cast<off_t>(page * kPage)) ==
              at);
        break;
      case 1:
        MUST(mprotect(at, kPage, PROT_READ));
        CHECK(at[7] == static_cast<unsigned char>(i));
        MUST(mprotect(at, kPage, PROT_READ | PROT_WRITE));
        break;
      default:
        at[9] = static_cast<unsigned char>(i + 1);
        CHECK(first[page * kPage + 9] == static_cast<unsigned char>(i + 1));
    }
  }
  CHECK(memcmp(first, second, pages * kPage) == 0);
  const uint64_t result = hash_of(first, pages * kPage);
  MUST(munmap(first, pages * kPage));
  MUST(munmap(second, pages * kPage));
  close(fd);
  return result;
}

// Code that is generated, run, and generated again.
uint64_t made_code(Actor& actor) {
  unsigned char* code = map(1, MAP_PRIVATE | MAP_ANONYMOUS);
  uint64_t sum = 0;
  for (int i = actor.random.between(1, 6); i > 0; i--) {
    const auto value = static_cast<uint32_t>(actor.random.next());
    code[0] = 0xb8, code[5] = 0xc3;  // mov $value, %eax; ret
    memcpy(code + 1, &value, sizeof value);
    MUST(mprotect(code, kPage, PROT_READ | PROT_EXEC));
    CHECK(reinterpret_cast<uint32_t (*)()>(code)() == value);
    MUST(mprotect(code, kPage, PROT_READ | PROT_WRITE));
    sum += value;
  }
  MUST(munmap(code, kPage));
  return sum;
}

uint64_t heap(Actor& actor) {
  std::vector<std::vector<unsigned char>> blocks(40);
  uint64_t sum = 0;
  for (int i = actor.random.between(20, 200); i > 0; i--) {
    auto& block = blocks[actor.random.next() % blocks.size()];
    if (!block.empty()) {
      CHECK(block.front() == block.back());
      sum += block.front();
    }
    block = std::vector<unsigned char>(1 + actor.random.next() % (actor.random.below(10) == 0 ? 300000 : 2000),
                                       static_cast<unsigned char>(i));
  }
  return sum;
}

__attribute__((noinline)) uint64_t recurse(int depth) {
  volatile unsigned char frame[1500];
  for (size_t i = 0; i < sizeof frame; i += 100) frame[i] = static_cast<unsigned char>(depth);
  const uint64_t below = depth == 0 ? 0 : recurse(depth - 1);
  return below + frame[700];
}

uint64_t deep_stack(Actor& actor) { return recurse(actor.random.between(1, 900)); }

}  // namespace

const std::vector<Action>& memory_actions() {
  static const std::vector<Action> actions = {
      {"private_pages", private_pages}, {"faults", faults},       {"shared_turns", shared_turns},
      {"shared_file", shared_file},     {"inherited", inherited}, {"two_views", two_views},
      {"made_code", made_code},         {"heap", heap},           {"deep_stack", deep_stack},
  };
  return actions;
}
