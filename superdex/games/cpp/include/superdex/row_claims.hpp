// Who works on which rows: calls that share a row run one after the other.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "superdex_game.h"

namespace superdex {

// A call claims all of its rows at once, or waits holding none, so that calls can't lock each other
// out. Rows are checked on the way: a claim is refused before it waits.
class RowClaims {
 public:
  explicit RowClaims(std::int32_t num_rows) : owner_(static_cast<std::size_t>(num_rows), 0) {}

  // The rows of one call, given back at its end.
  class Claim {
   public:
    Claim(RowClaims& claims, const std::int32_t* rows, std::int32_t count) noexcept
        : claims_(claims), rows_(rows), count_(count), status_(claims.take(rows, count)) {}
    ~Claim() {
      if (status_ == SDG_OK) claims_.give_back(rows_, count_);
    }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;

    [[nodiscard]] std::int32_t status() const noexcept { return status_; }
    [[nodiscard]] std::int32_t row(std::int32_t i) const noexcept { return rows_ ? rows_[i] : i; }

   private:
    RowClaims& claims_;
    const std::int32_t* rows_;
    std::int32_t count_;
    std::int32_t status_;
  };

 private:
  using Lock = std::unique_lock<std::mutex>;

  std::int32_t take(const std::int32_t* rows, std::int32_t count) noexcept {
    const auto num_rows = static_cast<std::int32_t>(owner_.size());
    if (rows == nullptr) {
      if (count != num_rows) return SDG_BAD_ARGUMENT;
      Lock lock(mutex_);
      free_.wait(lock, [this] { return !all_ && some_ == 0; });
      all_ = true;
      return SDG_OK;
    }
    if (count < 0) return SDG_BAD_ARGUMENT;
    for (std::int32_t i = 0; i < count; ++i) {
      if (rows[i] < 0 || rows[i] >= num_rows) return SDG_BAD_ROW;
    }
    Lock lock(mutex_);
    for (;;) {
      const Outcome outcome = all_ ? Outcome::taken : mark(rows, count);
      if (outcome == Outcome::duplicate) return SDG_DUPLICATE_ROW;
      if (outcome == Outcome::mine) break;
      free_.wait(lock);
    }
    ++some_;
    return SDG_OK;
  }

  enum class Outcome { mine, taken, duplicate };

  Outcome mark(const std::int32_t* rows, std::int32_t count) noexcept {
    Outcome outcome = Outcome::mine;
    std::int32_t marked = 0;
    for (; marked < count && outcome == Outcome::mine; ++marked) {
      std::uint8_t& owner = owner_[static_cast<std::size_t>(rows[marked])];
      if (owner == kClaimed) outcome = Outcome::taken;
      if (owner == kMarked) outcome = Outcome::duplicate;
      if (owner == 0) owner = kMarked;
    }
    // The last one looked at was not marked where it was in the way. A row named twice, the first of
    // which is taken, is noticed once it is free.
    const std::int32_t mine = outcome == Outcome::mine ? marked : marked - 1;
    const std::uint8_t becomes = outcome == Outcome::mine ? kClaimed : kFree;
    for (std::int32_t i = 0; i < mine; ++i) owner_[static_cast<std::size_t>(rows[i])] = becomes;
    return outcome;
  }

  void give_back(const std::int32_t* rows, std::int32_t count) noexcept {
    {
      const std::lock_guard lock(mutex_);
      if (rows == nullptr) {
        all_ = false;
      } else {
        for (std::int32_t i = 0; i < count; ++i) owner_[static_cast<std::size_t>(rows[i])] = kFree;
        --some_;
      }
    }
    free_.notify_all();
  }

  static constexpr std::uint8_t kFree = 0;
  static constexpr std::uint8_t kMarked = 1;   // by the call that holds the mutex
  static constexpr std::uint8_t kClaimed = 2;  // by a call that runs

  std::mutex mutex_;  // guards what follows
  std::condition_variable free_;
  std::vector<std::uint8_t> owner_;
  bool all_ = false;
  std::int32_t some_ = 0;  // calls that run on some rows
};

}  // namespace superdex
