// Locks whose rules the compiler checks: `clang -Wthread-safety` (`make tidy`) refuses code that touches a member that
// is GUARDED_BY a mutex without holding it. Source: clang's documentation, "Thread Safety Analysis".
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#ifdef __clang__
#define REDRIVE_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define REDRIVE_THREAD_SAFETY(attribute)
#endif
// The member may be read and written only while the mutex is held.
#define GUARDED_BY(mutex) REDRIVE_THREAD_SAFETY(guarded_by(mutex))
// The function or lambda may be called only while the mutex is held, or only while it is not.
#define REQUIRES(...) REDRIVE_THREAD_SAFETY(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) REDRIVE_THREAD_SAFETY(locks_excluded(__VA_ARGS__))

namespace redrive {

class REDRIVE_THREAD_SAFETY(capability("mutex")) Mutex {
 public:
  void lock() REDRIVE_THREAD_SAFETY(acquire_capability()) { mutex_.lock(); }
  void unlock() REDRIVE_THREAD_SAFETY(release_capability()) { mutex_.unlock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

// Holds a mutex as long as it exists, except between unlock() and lock().
class REDRIVE_THREAD_SAFETY(scoped_lockable) Lock {
 public:
  explicit Lock(Mutex& mutex) REDRIVE_THREAD_SAFETY(acquire_capability(mutex)) : mutex_(mutex) { mutex_.lock(); }
  ~Lock() REDRIVE_THREAD_SAFETY(release_capability()) {
    if (held_) mutex_.unlock();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  void lock() REDRIVE_THREAD_SAFETY(acquire_capability()) {
    mutex_.lock();
    held_ = true;
  }
  void unlock() REDRIVE_THREAD_SAFETY(release_capability()) {
    held_ = false;
    mutex_.unlock();
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

// What threads that hold a mutex wait for; the mutex is released meanwhile. A wait may end without a reason, so the
// caller must check again what it waits for.
class Condition {
 public:
  void wait(Mutex& mutex) REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }
  // False if the time has come first.
  template <typename Clock, typename Duration>
  bool wait_until(Mutex& mutex, std::chrono::time_point<Clock, Duration> time) REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = changed_.wait_until(lock, time) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  template <typename Rep, typename Period>
  bool wait_for(Mutex& mutex, std::chrono::duration<Rep, Period> time) REQUIRES(mutex) {
    return wait_until(mutex, std::chrono::steady_clock::now() + time);
  }
  void notify_one() { changed_.notify_one(); }
  void notify_all() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace redrive
