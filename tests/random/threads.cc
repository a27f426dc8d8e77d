// Threads that wait for each other, in all the ways there are.
#include <linux/futex.h>
#include <semaphore.h>
#include <sys/syscall.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "program.h"

namespace {

uint64_t queue_of_work(Actor& actor) {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<int> queue;
  const int producers = actor.random.between(1, 3), items = actor.random.between(1, 60);
  const size_t room = static_cast<size_t>(actor.random.between(1, 8));
  std::vector<std::thread> threads;
  for (int producer = 0; producer < producers; producer++) {
    threads.emplace_back([&, producer] {
      for (int i = 0; i < items; i++) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return queue.size() < room; });
        queue.push_back(producer * 1000 + i);
        changed.notify_all();
      }
    });
  }
  uint64_t sum = 0;
  for (int taken = 0; taken < producers * items; taken++) {
    std::unique_lock lock(mutex);
    while (queue.empty()) {
      if (taken % 3) {
        changed.wait(lock);
      } else {
        changed.wait_for(lock, std::chrono::milliseconds(2));
      }
    }
    actor.note(static_cast<uint64_t>(queue.front()));
    sum += static_cast<uint64_t>(queue.front());
    queue.pop_front();
    changed.notify_all();
  }
  for (auto& thread : threads) thread.join();
  return sum;
}

uint64_t contended_lock(Actor& actor) {
  pthread_mutex_t mutex;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  if (actor.random.coin()) MUST0(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE));
  if (actor.random.coin()) MUST0(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
  MUST0(pthread_mutex_init(&mutex, &attributes));
  const int threads = actor.random.between(2, 4), rounds = actor.random.between(1, 60);
  uint64_t counter = 0, order = 0;
  std::vector<std::thread> all;
  for (int i = 0; i < threads; i++) {
    all.emplace_back([&, i] {
      for (int k = 0; k < rounds; k++) {
        MUST0(pthread_mutex_lock(&mutex));
        const uint64_t now = counter;
        if (k % 7 == 0) sched_yield();
        counter = now + 1;
        order = order * 5 + static_cast<uint64_t>(i);
        MUST0(pthread_mutex_unlock(&mutex));
      }
    });
  }
  for (auto& thread : all) thread.join();
  actor.note(order);
  CHECK(counter == static_cast<uint64_t>(threads * rounds));
  pthread_mutex_destroy(&mutex);
  return counter;
}

// Two threads wake each other by a bare futex.
uint64_t futex_turns(Actor& actor) {
  std::atomic<uint32_t> word{0};
  const uint32_t rounds = static_cast<uint32_t>(actor.random.between(1, 60));
  const bool timed = actor.random.coin();
  const auto play = [&](uint32_t parity) {
    for (uint32_t i = 0; i < rounds; i++) {
      for (uint32_t now = word; now % 2 != parity; now = word) {
        const timespec limit = {0, 1000000};
        syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, now, timed ? &limit : nullptr, nullptr, 0);
      }
      word++;
      syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
  CHECK(word == 2 * rounds);
  return rounds;
}

uint64_t barriers(Actor& actor) {
  const int threads = actor.random.between(2, 4), rounds = actor.random.between(1, 12);
  pthread_barrier_t barrier;
  MUST0(pthread_barrier_init(&barrier, nullptr, static_cast<unsigned>(threads)));
  std::atomic<int> arrived{0};
  std::vector<std::thread> all;
  for (int i = 0; i < threads; i++) {
    all.emplace_back([&, i] {
      for (int k = 1; k <= rounds; k++) {
        spend(i * 20);
        arrived++;
        pthread_barrier_wait(&barrier);
        CHECK(arrived == threads * k);
        pthread_barrier_wait(&barrier);
      }
    });
  }
  for (auto& thread : all) thread.join();
  pthread_barrier_destroy(&barrier);
  return static_cast<uint64_t>(threads * rounds);
}

// Waiting without sleeping: with sched_yield, or without any system call, where only preemption helps.
uint64_t spinning(Actor& actor) {
  std::atomic<int> turn{0};
  const bool yields = actor.random.below(4) != 0;
  const int rounds = yields ? actor.random.between(1, 10) : 1;
  const auto play = [&](int parity) {
    for (int i = 0; i < rounds; i++) {
      while (turn % 2 != parity) {
        if (yields) sched_yield();
      }
      turn++;
    }
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
  CHECK(turn == 2 * rounds);
  return static_cast<uint64_t>(rounds);
}

uint64_t semaphores(Actor& actor) {
  sem_t items, space;
  MUST(sem_init(&items, 0, 0));
  MUST(sem_init(&space, 0, 3));
  const int count = actor.random.between(1, 50);
  std::thread producer([&] {
    for (int i = 0; i < count; i++) {
      while (sem_wait(&space) < 0) CHECK(errno == EINTR);
      sem_post(&items);
    }
  });
  for (int i = 0; i < count; i++) {
    timespec limit;
    MUST(clock_gettime(CLOCK_REALTIME, &limit));
    limit.tv_nsec += 1000000;
    if (limit.tv_nsec >= 1000000000) limit.tv_sec++, limit.tv_nsec -= 1000000000;
    while ((i % 2 ? sem_timedwait(&items, &limit) : sem_wait(&items)) < 0) {
      actor.note(static_cast<uint64_t>(errno));
      CHECK(errno == EINTR || errno == ETIMEDOUT);
      if (errno == ETIMEDOUT) limit.tv_sec++;
    }
    sem_post(&space);
  }
  producer.join();
  return static_cast<uint64_t>(count);
}

uint64_t cancelled(Actor& actor) {
  int fds[2];
  MUST(pipe2(fds, O_CLOEXEC));
  pthread_t thread;
  MUST0(pthread_create(
      &thread, nullptr,
      [](void* argument) -> void* {
        // From 2.41 on, the GNU C library loses a cancellation that comes together with a signal for a handler.
        sigset_t all;
        sigfillset(&all);
        CHECK(pthread_sigmask(SIG_BLOCK, &all, nullptr) == 0);
        char byte;
        while (read(*static_cast<int*>(argument), &byte, 1) < 0) {
        }
        return nullptr;
      },
      fds));
  if (actor.random.coin()) spend(actor.random.below(300));
  MUST0(pthread_cancel(thread));
  void* result = nullptr;
  MUST0(pthread_join(thread, &result));
  CHECK(result == PTHREAD_CANCELED);
  close(fds[0]), close(fds[1]);
  return 1;
}

// A short-lived crowd, some of it detached.
uint64_t crowd(Actor& actor) {
  const int count = actor.random.between(2, 20);
  std::atomic<int> done{0};
  std::vector<std::thread> joined;
  for (int i = 0; i < count; i++) {
    std::thread thread([&, i] {
      static thread_local int own = 5;
      own += i;
      CHECK(own == 5 + i);
      done++;
    });
    if (i % 3 == 0) {
      thread.detach();
    } else {
      joined.push_back(std::move(thread));
    }
  }
  for (auto& thread : joined) thread.join();
  while (done < count) sched_yield();
  return static_cast<uint64_t>(count);
}

}  // namespace

const std::vector<Action>& thread_actions() {
  static const std::vector<Action> actions = {
      {"queue_of_work", queue_of_work}, {"contended_lock", contended_lock},
      {"futex_turns", futex_turns},     {"barriers", barriers},
      {"spinning", spinning},           {"semaphores", semaphores},
      {"cancelled", cancelled},         {"crowd", crowd},
  };
  return actions;
}
