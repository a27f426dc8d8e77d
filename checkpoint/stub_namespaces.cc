#include "checkpoint/stub_namespaces.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "checkpoint/stub.h"
#include "checkpoint/tiny_program.h"

namespace redrive {
namespace {

constexpr int kAllButUser = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC;
constexpr size_t kStackSize = 32 << 10;

// The program of the process that holds the namespaces; it ends when its input ends.
extern "C" const uint8_t redrive_holder_code[], redrive_holder_code_end[];
asm(R"(
  .pushsection .rodata
redrive_holder_code:
  xor %eax, %eax  # read(2)
  xor %edi, %edi
  lea -256(%rsp), %rsi
  mov $1, %edx
  syscall
  cmp $-4, %rax  # EINTR
  je redrive_holder_code
  mov $231, %eax  # exit_group(2)
  xor %edi, %edi
  syscall
redrive_holder_code_end:
  .popsection
)");

Result<Fd> holder_program() {
  constexpr Address kStart = 0x10000, kCode = kStart + 0x100;
  const auto size = static_cast<size_t>(redrive_holder_code_end - redrive_holder_code);
  return make_tiny_program("redrive-namespaces", {kStart, kCode, {redrive_holder_code, size}, kCode, false});
}

// clone(2), by a name that GCC's ThreadSanitizer does not take for a fork: after a fork it would not see our locks.
extern "C" int __clone(int (*body)(void*), void* stack, int flags, void* arg, ...) noexcept;

// clone(2) with CLONE_VM and CLONE_VFORK. Returns the kernel's result, with errno.
REDRIVE_ON_OUR_MEMORY
pid_t run_child(int (*body)(void*), void* arg, int flags, std::vector<char>& stack, int* pidfd = nullptr) {
  return __clone(body, stack.data() + stack.size(), CLONE_VM | CLONE_VFORK | SIGCHLD | flags, arg, pidfd);
}

// Replaces all files by an empty directory that cannot be written to. Nothing is left of the others, not even below it.
REDRIVE_ON_OUR_MEMORY
bool leave_all_files() {
  return mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", "/proc", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=4k") == 0 && chdir("/proc") == 0 &&
         syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0 &&
         mount(nullptr, "/", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) ==
             0;
}

// Keeps the files, shows the new namespace's processes in /proc, and lets processes reach the network that has nobody
// else in it, because CRIU tries out what sockets can do.
REDRIVE_ON_OUR_MEMORY
bool keep_all_files() {
  constexpr mode_t kMayEnter = 0555;
  const bool arranged = mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                        mount("none", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0 &&
                        mount("none", StubNamespaces::kPlace, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755") == 0 &&
                        mkdir(StubNamespaces::kEmpty, kMayEnter) == 0 && chmod(StubNamespaces::kEmpty, kMayEnter) == 0;
  if (!arranged) return false;
  const int network = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq loopback{};
  loopback.ifr_name[0] = 'l', loopback.ifr_name[1] = 'o';
  loopback.ifr_flags = IFF_UP;
  ioctl(network, SIOCSIFFLAGS, &loopback);
  return true;
}

struct Holder {
  int program, input, kinds;
  bool (*arrange)();
  std::vector<char> stack;
  pid_t pid = -1;
  int pidfd = -1;  // ours: the child shares the maker's table of descriptors
  int error = 0;
};

// Becomes the first process of the new namespaces. Children whose parents have ended become its own; it need not wait
// for them.
REDRIVE_ON_OUR_MEMORY
int hold_namespaces(void* arg) {
  const auto& holder = *static_cast<const Holder*>(arg);
  char* const argv[] = {const_cast<char*>("redrive-namespaces"), nullptr};
  char* const envp[] = {nullptr};
  if (!holder.arrange() || signal(SIGCHLD, SIG_IGN) == SIG_ERR || dup2(holder.input, 0) < 0 ||
      close_range(1, ~0u, CLOSE_RANGE_CLOEXEC) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    _exit(127);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);  // such as a terminal's Ctrl-C
  fexecve(holder.program, argv, envp);
  _exit(127);
}

// Its maker ends at once, so that the holder is not our child when others wait for our children.
REDRIVE_ON_OUR_MEMORY
int make_holder(void* arg) {
  auto& holder = *static_cast<Holder*>(arg);
  holder.pid = run_child(hold_namespaces, arg, CLONE_PIDFD | holder.kinds, holder.stack, &holder.pidfd);
  holder.error = errno;
  _exit(0);
}

struct Entering {
  int holder, kinds;
  int (*body)(void*);
  void* arg;
  std::vector<char> stack;
  pid_t child = -1;
  int error = 0;
};

// The children of a process are in the PID namespace that it has entered; the process itself is not.
REDRIVE_ON_OUR_MEMORY
int enter(void* arg) {
  auto& entering = *static_cast<Entering*>(arg);
  if (setns(entering.holder, entering.kinds) == 0) {
    entering.child = run_child(entering.body, entering.arg, CLONE_PARENT, entering.stack);
  }
  entering.error = errno;
  _exit(0);
}

bool has_ended(int pidfd) {
  pollfd end{pidfd, POLLIN, 0};
  return poll(&end, 1, 0) != 0;
}

REDRIVE_ON_OUR_MEMORY
int end_at_once(void*) { _exit(0); }

// Runs a child that ends by itself.
bool run_to_end(int (*body)(void*), void* arg, int flags) {
  std::vector<char> stack(kStackSize);
  const pid_t child = run_child(body, arg, flags, stack);
  int status = 0;
  return child >= 0 && wait_for(child, status);
}

Result<pid_t> spawn_in(int holder, int kinds, int (*body)(void*), void* arg) {
  Entering entering{holder, kinds, body, arg, std::vector<char>(kStackSize)};
  if (!run_to_end(enter, &entering, 0)) return errno_error("clone");
  if (entering.child < 0) return errno_error("setns", entering.error);
  return entering.child;
}

}  // namespace

const StubNamespaces& StubNamespaces::ours() {
  static const StubNamespaces namespaces({CLONE_NEWUSER | kAllButUser, kAllButUser}, leave_all_files);
  return namespaces;
}

const StubNamespaces& StubNamespaces::of_criu() {
  static const StubNamespaces namespaces({kAllButUser}, keep_all_files);
  return namespaces;
}

StubNamespaces::StubNamespaces(std::initializer_list<int> kinds, Arrange& arrange) {
  for (const int these : kinds) {
    const auto made = make(these, arrange);
    if (made) return;
    missing_ = made.error().message;
  }
}

Result<void> StubNamespaces::make(int kinds, Arrange& arrange) {
  ASSIGN_OR_RETURN(const Fd program, holder_program());
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno_error("cannot make a pipe");
  const Fd input(ends[0]);
  Fd alive(ends[1]);
  Holder holder{program.get(), input.get(), kinds, arrange, std::vector<char>(kStackSize)};
  if (!run_to_end(make_holder, &holder, CLONE_FILES)) return errno_error("clone");
  if (holder.pid < 0) return errno_error("clone", holder.error);
  Fd first(holder.pidfd);
  if (has_ended(first.get())) return Error{"cannot arrange the files of new namespaces"};
  const auto tried = spawn_in(first.get(), kinds, end_at_once, nullptr);
  if (!tried) return tried.error();
  int status = 0;
  wait_for(*tried, status);
  first_ = std::move(first);
  alive_ = std::move(alive);
  holder_ = holder.pid;
  kinds_ = kinds;
  return {};
}

Result<pid_t> StubNamespaces::spawn(int (*body)(void*), void* arg) const {
  return kinds_ ? spawn_in(first_.get(), kinds_, body, arg) : spawn_outside(body, arg);
}

Result<pid_t> StubNamespaces::spawn_outside(int (*body)(void*), void* arg) {
  std::vector<char> stack(kStackSize);
  const pid_t pid = run_child(body, arg, 0, stack);
  if (pid < 0) return errno_error("clone");
  return pid;
}

}  // namespace redrive
