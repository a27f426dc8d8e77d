// Locks whose rules the compiler checks: `clang -Wthread-safety` (`make tidy`) refuses code that touches a member that
// is GUARDED_BY a mutex, or by another capability, without holding it. Source: clang's documentation, "Thread Safety
// Analysis".
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#ifdef __clang__
#define REDRIVE_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define REDRIVE_THREAD_SAFETY(attribute)
#endif
// What one thread at a time can hold, and an object that holds one as long as it exists.
#define CAPABILITY(kind) REDRIVE_THREAD_SAFETY(capability(kind))
#define SCOPED_CAPABILITY REDRIVE_THREAD_SAFETY(scoped_lockable)
// The member may be read and written only while the mutex is held.
#define GUARDED_BY(mutex) REDRIVE_THREAD_SAFETY(guarded_by(mutex))
// The function or lambda may be called only while the mutex is held, or only while it is not.
#define REQUIRES(...) REDRIVE_THREAD_SAFETY(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) REDRIVE_THREAD_SAFETY(locks_excluded(__VA_ARGS__))
// After the call, the mutex is held, or no longer.
#define ACQUIRES(...) REDRIVE_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define RELEASES(...) REDRIVE_THREAD_SAFETY(release_capability(__VA_ARGS__))
// The function fails if the capability is not held.
#define ASSERTS(...) REDRIVE_THREAD_SAFETY(assert_capability(__VA_ARGS__))

namespace redrive {

class CAPABILITY("mutex") Mutex {
 public:
  void lock() ACQUIRES() { mutex_.lock(); }
  void unlock() RELEASES() { mutex_.unlock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

// Holds a mutex as long as it exists, except between unlock() and lock().
class SCOPED_CAPABILITY Lock {
 public:
  explicit Lock(Mutex& mutex) ACQUIRES(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~Lock() RELEASES() {
    if (held_) mutex_.unlock();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  void lock() ACQUIRES() {
    mutex_.lock();
    held_ = true;
  }
  void unlock() RELEASES() {
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
