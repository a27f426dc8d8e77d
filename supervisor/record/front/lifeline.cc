#include "supervisor/record/front/lifeline.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/assert.h"

namespace redrive {
namespace {

// The kernel passes the lock on if the thread that holds it is killed, and only then lets the tracees run (do_exit(),
// kernel/exit.c).
struct Lifeline {
  pthread_mutex_t lock;
  std::atomic<bool> held{false};
  InjectedCall injected;
  RecordedProcesses recorded;
};
Lifeline* g_lifeline = nullptr;

}  // namespace

void RecordedProcesses::add(pid_t pid) {
  const auto end = pids_.begin() + static_cast<ptrdiff_t>(used_.load());
  const auto place = std::find(pids_.begin(), end, 0);
  if (place == pids_.end()) return;
  *place = pid;
  if (place == end) ++used_;
}

void RecordedProcesses::remove(pid_t pid) {
  const auto place = std::find(pids_.begin(), pids_.begin() + static_cast<ptrdiff_t>(used_.load()), pid);
  if (place != pids_.end() && *place == pid) *place = 0;
}

Result<void> make_lifeline() {
  void* const shared = mmap(nullptr, sizeof(Lifeline), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return errno_error("cannot map memory");
  g_lifeline = new (shared) Lifeline;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ASSERT(pthread_mutex_init(&g_lifeline->lock, &attributes) == 0);
  return {};
}

std::optional<LetGo> wait_for_lifeline(const std::stop_token& over) {
  while (!g_lifeline->held) {
    if (over.stop_requested()) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return pthread_mutex_lock(&g_lifeline->lock) == EOWNERDEAD ? LetGo::killed : LetGo::released;
}

const InjectedCall& injected_call() { return g_lifeline->injected; }

const RecordedProcesses& recorded_processes() { return g_lifeline->recorded; }

void hold_lifeline() {
  pthread_mutex_lock(&g_lifeline->lock);
  g_lifeline->held = true;
}

void release_lifeline() {
  if (g_lifeline) pthread_mutex_unlock(&g_lifeline->lock);
}

void note_injected(pid_t tid, const user_regs_struct& regs, uint64_t mask) {
  if (!g_lifeline) return;
  g_lifeline->injected.regs = regs;
  g_lifeline->injected.mask = mask;
  g_lifeline->injected.tid = tid;
}

void forget_injected() {
  if (g_lifeline) g_lifeline->injected.tid = 0;
}

void note_recorded(pid_t pid) {
  if (g_lifeline) g_lifeline->recorded.add(pid);
}

void forget_recorded(pid_t pid) {
  if (g_lifeline) g_lifeline->recorded.remove(pid);
}

}  // namespace redrive
