// Threads that live as long as their pool and share out the numbers of a loop.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

namespace superdex {

// run(count, grain, body) calls body(i) once for every i below count and returns when all have come
// back. The caller works too. What a body does must depend on i alone: who runs it is left to chance.
//
//     caller ── opens the job, wakes threads ── takes chunks ── closes the job ── waits for the joined
//     thread ──────────── joins while it is open ── takes chunks ── leaves ── sleeps
//
// A thread that wakes late finds the job closed and never touches it. Where another caller has the
// pool, or the loop is small, the body runs on the caller's thread alone: the results are the same.
class ThreadPool {
 public:
  // Threads: the caller's own included. Throws std::system_error where threads can't be made.
  explicit ThreadPool(int num_threads) {
    try {
      threads_.reserve(static_cast<std::size_t>(num_threads - 1));
      for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this] { work(); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~ThreadPool() { stop(); }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Call body(i) for all i in 0 … count − 1, in chunks of `grain`; body must not throw.
  template <class Body>
  void run(std::int32_t count, std::int32_t grain, Body&& body) noexcept {
    const std::int32_t chunks = count / grain + (count % grain != 0);
    std::unique_lock turn(turn_, std::defer_lock);
    if (threads_.empty() || chunks < 2 || !turn.try_lock()) {
      for (std::int32_t i = 0; i < count; ++i) body(i);
      return;
    }
    Job job{count, grain, &body, [](void* context, std::int32_t i) noexcept {
              (*static_cast<std::remove_reference_t<Body>*>(context))(i);
            }};
    {
      const std::lock_guard lock(mutex_);
      job_ = &job;
    }
    const std::int32_t wanted = std::min<std::int32_t>(chunks - 1, static_cast<std::int32_t>(threads_.size()));
    for (std::int32_t i = 0; i < wanted; ++i) wake_.notify_one();
    job.take();
    std::unique_lock lock(mutex_);
    job_ = nullptr;
    left_.wait(lock, [this] { return joined_ == 0; });
  }

 private:
  struct Job {
    std::int32_t count;
    std::int32_t grain;
    void* context;
    void (*call)(void*, std::int32_t) noexcept;
    std::atomic<std::int64_t> next{0};  // passes `count` by one chunk per thread at most

    void take() noexcept {
      for (;;) {
        const std::int64_t first = next.fetch_add(grain, std::memory_order_relaxed);
        if (first >= count) return;
        const std::int64_t last = std::min<std::int64_t>(count, first + grain);
        for (std::int64_t i = first; i < last; ++i) call(context, static_cast<std::int32_t>(i));
      }
    }
    [[nodiscard]] bool open() const noexcept {
      return next.load(std::memory_order_relaxed) < count;
    }
  };

  void work() noexcept {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stopping_ || (job_ != nullptr && job_->open()); });
      if (stopping_) return;
      Job& job = *job_;
      ++joined_;
      lock.unlock();
      job.take();
      lock.lock();
      if (--joined_ == 0) left_.notify_one();
    }
  }

  void stop() noexcept {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::mutex turn_;   // held by the caller whose job is out
  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::condition_variable left_;
  Job* job_ = nullptr;
  std::int32_t joined_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace superdex
