// Notices that this process is a forked child, where the threads of its parent's pools do not exist.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <system_error>

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace superdex {

// Remembers how many forks deep the process was when it was made. Asking costs one load, where
// getpid() would be a system call.
class ForkGuard {
 public:
  ForkGuard() {
#if !defined(_WIN32)
    static std::once_flag registered;
    std::call_once(registered, [] {
      const int error = pthread_atfork(nullptr, nullptr, [] {
        depth().fetch_add(1, std::memory_order_relaxed);
      });
      if (error != 0) throw std::system_error(error, std::generic_category());
    });
#endif
    made_at_ = depth().load(std::memory_order_relaxed);
  }

  [[nodiscard]] bool forked() const noexcept {
    return depth().load(std::memory_order_relaxed) != made_at_;
  }

 private:
  static std::atomic<std::uint32_t>& depth() noexcept {
    static std::atomic<std::uint32_t> value{0};
    return value;
  }
  std::uint32_t made_at_ = 0;
};

}  // namespace superdex
