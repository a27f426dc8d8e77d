// Signals that a process queues to itself as if an instruction had caused them, as crash reporters do that raise a fault anew. A thread or
// the process gets them; blocked ones wait; and where no handler is set they end the process.
#include "test.h"

#include <sys/mman.h>
#include <sys/resource.h>

enum { kAddress = 0x1234 };

static const struct {
  int signal, code;
} kinds[] = {{SIGSEGV, SEGV_MAPERR}, {SIGSEGV, SI_KERNEL}, {SIGBUS, BUS_ADRERR}, {SIGFPE, FPE_INTDIV}, {SIGILL, ILL_ILLOPN},
             {SIGTRAP, TRAP_BRKPT},  {SIGTRAP, TRAP_TRACE}, {SIGSYS, 1},          {SIGUSR1, 1},         {SIGSEGV, SI_USER}};
enum { kKinds = sizeof kinds / sizeof kinds[0] };

static volatile sig_atomic_t count;
static volatile siginfo_t last;

static void note(int signal, siginfo_t* info, void* unused) {
  (void)unused;
  CHECK(signal == info->si_signo);
  last = *info;
  count++;
}

static siginfo_t of_kind(int kind) {
  siginfo_t info = {.si_signo = kinds[kind].signal, .si_code = kinds[kind].code};
  info.si_addr = (void*)kAddress;
  return info;
}

static void queue(siginfo_t* info, int to_thread) {
  if (to_thread) {
    MUST(syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), info->si_signo, info));
  } else {
    MUST(syscall(SYS_rt_sigqueueinfo, getpid(), info->si_signo, info));
  }
}

static void handle(int signal, void (*handler)(int, siginfo_t*, void*), int flags) {
  MUST(sigaction(signal, &(struct sigaction){.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags}, NULL));
}

// What crash reporters do about a fault of the program's.
static void raise_anew(int signal, siginfo_t* info, void* unused) {
  (void)unused;
  MUST(sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL));
  queue(info, 1);
}

int main(void) {
  for (int kind = 0; kind < kKinds; kind++) {
    handle(kinds[kind].signal, note, 0);
    for (int to_thread = 0; to_thread < 2; to_thread++) {
      siginfo_t info = of_kind(kind);
      count = 0;
      queue(&info, to_thread);
      CHECK(count == 1 && last.si_code == kinds[kind].code && last.si_addr == (void*)kAddress);
      const int code = last.si_code;
      NOTE(code);
    }
  }

  sigset_t some;
  sigemptyset(&some);
  for (int kind = 0; kind < kKinds; kind++) sigaddset(&some, kinds[kind].signal);
  for (int kind = 0; kind < kKinds; kind++) {
    MUST(sigprocmask(SIG_BLOCK, &some, NULL));
    siginfo_t info = of_kind(kind);
    count = 0;
    queue(&info, kind % 2);
    getppid();
    CHECK(count == 0);
    MUST(sigprocmask(SIG_UNBLOCK, &some, NULL));
    CHECK(count == 1 && last.si_code == kinds[kind].code);
  }

  const struct rlimit none = {0, 0};
  MUST(setrlimit(RLIMIT_CORE, &none));
  for (int faults = 0; faults < 2; faults++) {
    const pid_t child = MUST(fork());
    if (child == 0) {
      char* const page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      CHECK(page != MAP_FAILED);
      handle(SIGSEGV, raise_anew, SA_NODEFER);
      siginfo_t info = of_kind(0);
      if (faults) {
        *(volatile char*)page = 1;
      } else {
        queue(&info, 0);
      }
      _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  }
  return ok("noted %llx", (unsigned long long)noted);
}
