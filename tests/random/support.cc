#include <sched.h>

#include <algorithm>

#include "program.h"

thread_local FaultRange fault_range;

std::string Actor::file_name(const char* what) const {
  return std::string(what) + "." + std::to_string(process) + "." + std::to_string(thread) + "." +
         std::to_string(action);
}

uint64_t hash_of(const void* data, size_t size, uint64_t start) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < size; i++) start = (start ^ bytes[i]) * 1099511628211ull;
  return start;
}

unsigned char pattern(uint64_t seed, uint64_t offset) {
  return static_cast<unsigned char>((seed >> (offset % 7 * 8)) + offset * 13 + (offset >> 9));
}

void fill_pattern(std::vector<unsigned char>& data, uint64_t seed, uint64_t offset) {
  for (size_t i = 0; i < data.size(); i++) data[i] = pattern(seed, offset + i);
}

pid_t start_child(const std::function<int()>& work) {
  const pid_t child = MUST(fork());
  if (child == 0) _exit(work());
  return child;
}

void expect_exit(Actor& actor, pid_t child, int status) {
  int found = 0;
  again(actor, [&] { return waitpid(child, &found, 0); });
  CHECK(WIFEXITED(found) && WEXITSTATUS(found) == status);
}

void run_in_child(Actor& actor, const std::function<int()>& work) { expect_exit(actor, start_child(work), 0); }

std::string own_binary() {
  char path[4096];
  const ssize_t size = MUST(readlink("/proc/self/exe", path, sizeof path));
  return {path, static_cast<size_t>(size)};
}

void spend(int microseconds) {
  uint64_t x = 88172645463325252ull;
  for (int i = 0; i < microseconds * 300; i++) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
  }
  __asm__ volatile("" ::"r"(x));
}

void write_fully(Actor& actor, int fd, const void* data, size_t size) {
  for (size_t done = 0; done < size;) {
    done += static_cast<size_t>(
        again(actor, [&] { return write(fd, static_cast<const char*>(data) + done, size - done); }));
  }
}

void read_fully(Actor& actor, int fd, void* data, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = again(actor, [&] { return read(fd, static_cast<char*>(data) + done, size - done); });
    CHECK(n > 0);
    done += static_cast<size_t>(n);
  }
}

static void on_fault(int, siginfo_t* info, void*) {
  auto* address = static_cast<unsigned char*>(info->si_addr);
  if (address < fault_range.begin || address >= fault_range.begin + fault_range.size) {
    fprintf(stderr, "fault at %p\n", static_cast<void*>(address));
    _exit(98);
  }
  const int before = errno;
  auto* page = reinterpret_cast<unsigned char*>(reinterpret_cast<uintptr_t>(address) & ~uintptr_t{4095});
  MUST(mprotect(page, 4096, PROT_READ | PROT_WRITE));
  fault_range.faults++;
  errno = before;
}

void install_fault_handler() {
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  MUST(sigaction(SIGSEGV, &action, nullptr));
}
