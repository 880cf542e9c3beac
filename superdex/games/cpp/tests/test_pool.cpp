// The pool runs each number once, whoever calls; claims keep calls apart that share a row.

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "check.hpp"
#include "superdex/row_claims.hpp"
#include "superdex/thread_pool.hpp"

namespace {

using namespace superdex;

void each_number_is_run_once() {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (const std::int32_t count : {0, 1, 7, 64, 1000}) {
      for (const std::int32_t grain : {1, 8, 5000}) {
        std::vector<std::int32_t> runs(static_cast<std::size_t>(count), 0);
        pool.run(count, grain, [&](std::int32_t i) noexcept { ++runs[static_cast<std::size_t>(i)]; });
        for (const std::int32_t times : runs) CHECK(times == 1);
      }
    }
  }
}

// Each number waits for the others: with one thread less it would never end.
void all_threads_run_at_the_same_time() {
  for (const int threads : {2, 4}) {
    ThreadPool pool(threads);
    for (int call = 0; call < 20; ++call) {
      std::latch all_there(threads);
      pool.run(threads, 1, [&](std::int32_t) noexcept { all_there.arrive_and_wait(); });
    }
  }
}

void small_loops_run_on_the_callers_thread() {
  ThreadPool pool(4);
  for (int call = 0; call < 20; ++call) {
    std::atomic<int> elsewhere{0};
    pool.run(8, 8, [&, caller = std::this_thread::get_id()](std::int32_t) noexcept {
      elsewhere += std::this_thread::get_id() != caller;
    });
    CHECK(elsewhere == 0);
  }
}

void several_callers_share_a_pool() {
  ThreadPool pool(3);
  std::atomic<std::int64_t> total{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int call = 0; call < 300; ++call) {
        std::vector<std::int32_t> mine(50, 0);
        pool.run(50, 2, [&](std::int32_t i) noexcept { mine[static_cast<std::size_t>(i)] += i; });
        for (const std::int32_t value : mine) total += value;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(total == 3 * 300 * (49 * 50 / 2));
}

// Rows are plain numbers here: only claims keep the threads from racing for them.
void calls_that_share_rows_take_turns() {
  RowClaims claims(6);
  std::vector<std::int32_t> rows(6, 0);
  std::latch all_there(4);
  const auto caller = [&](std::vector<std::int32_t> named) {
    all_there.arrive_and_wait();
    const std::int32_t count = named.empty() ? 6 : static_cast<std::int32_t>(named.size());
    for (int call = 0; call < 300; ++call) {
      const RowClaims::Claim claim(claims, named.empty() ? nullptr : named.data(), count);
      CHECK(claim.status() == SDG_OK);
      for (std::int32_t i = 0; i < count; ++i) {
        std::int32_t& row = rows[static_cast<std::size_t>(claim.row(i))];
        const std::int32_t before = row;
        std::this_thread::yield();  // gives the others every chance to step in
        row = before + 1;
      }
    }
  };
  std::thread threads[] = {std::thread(caller, std::vector<std::int32_t>{}),
                           std::thread(caller, std::vector<std::int32_t>{0, 1, 2}),
                           std::thread(caller, std::vector<std::int32_t>{3, 2, 1}),
                           std::thread(caller, std::vector<std::int32_t>{5, 4})};
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::int32_t> expected = {600, 900, 900, 600, 600, 600};
  CHECK(rows == expected);
}

void refused_claims_hold_nothing() {
  RowClaims claims(4);
  const std::int32_t twice[] = {1, 2, 1};
  const std::int32_t outside[] = {0, 4};
  CHECK(RowClaims::Claim(claims, twice, 3).status() == SDG_DUPLICATE_ROW);
  CHECK(RowClaims::Claim(claims, outside, 2).status() == SDG_BAD_ROW);
  CHECK(RowClaims::Claim(claims, nullptr, 3).status() == SDG_BAD_ARGUMENT);
  CHECK(RowClaims::Claim(claims, outside, -1).status() == SDG_BAD_ARGUMENT);
  CHECK(RowClaims::Claim(claims, nullptr, 4).status() == SDG_OK);
}

void pools_come_and_go() {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(1 + i % 4);
    std::atomic<int> runs{0};
    if (i % 2 == 0) pool.run(9, 1, [&](std::int32_t) noexcept { ++runs; });
    CHECK(runs == (i % 2 == 0 ? 9 : 0));
  }
}

}  // namespace

int main() {
  each_number_is_run_once();
  all_threads_run_at_the_same_time();
  small_loops_run_on_the_callers_thread();
  several_callers_share_a_pool();
  calls_that_share_rows_take_turns();
  refused_claims_hold_nothing();
  pools_come_and_go();
}
