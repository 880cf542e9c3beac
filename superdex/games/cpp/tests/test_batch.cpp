// Batches through the C functions: threads, memory, numbers, and arguments that make no sense.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "superdex/batch.hpp"
#include "superdex/random.hpp"
#include "superdex_game.h"
#include "tron_batch.hpp"
#include "tron_game.hpp"

namespace {
std::atomic<std::int64_t> allocations{0};
}

// Counts what the engine allocates. Inlined, GCC 12 takes malloc and delete for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

using namespace superdex;
using namespace superdex::testing;

void threads_change_nothing_and_nothing_is_allocated(std::vector<std::int64_t> options) {
  const std::int32_t games = 64;
  Tron one(options, games, 1);
  Tron three(options, games, 3);
  Arrays first(one.about, games);
  Arrays second(one.about, games);
  std::vector<std::int32_t> actions(games), moves(games);
  std::vector<std::uint64_t> states(games * static_cast<std::size_t>(sdg_state_size(one.batch)) / 8);
  const std::int32_t some[] = {5, 63, 0};
  SplitMix64 random{1};
  CHECK(sdg_observe(one.batch, nullptr, games, &first.out) == SDG_OK);
  const std::int64_t before = allocations;
  for (int step = 0; step < 120; ++step) {
    choose(first, random, actions);
    const std::int32_t flags = SDG_AUTO_RESET | (step % 2 == 0 ? SDG_KEEP_ILLEGAL : 0);
    CHECK(sdg_step(one.batch, nullptr, games, actions.data(), nullptr, flags, &first.out) == SDG_OK);
    CHECK(sdg_step(three.batch, nullptr, games, actions.data(), nullptr, flags, &second.out) == SDG_OK);
    CHECK(first == second);
    if (step % 10 == 0) {
      CHECK(sdg_bot_moves(one.batch, step % 4, 3, 60, nullptr, games, nullptr, moves.data()) == SDG_OK);
      CHECK(sdg_bot_moves(three.batch, step % 4, 3, 60, nullptr, games, nullptr, actions.data()) == SDG_OK);
      CHECK(moves == actions);
    }
    if (step % 30 == 7) {
      auto* bytes = reinterpret_cast<std::uint8_t*>(states.data());
      CHECK(sdg_capture(one.batch, some, 3, bytes) == SDG_OK);
      CHECK(sdg_restore(one.batch, some, 3, bytes) == SDG_OK);
      CHECK(sdg_restore(three.batch, some, 3, bytes) == SDG_OK);
    }
    if (step == 60) {
      CHECK(sdg_reset(one.batch, nullptr, games, nullptr, nullptr, &first.out) == SDG_OK);
      CHECK(sdg_reset(three.batch, nullptr, games, nullptr, nullptr, &second.out) == SDG_OK);
      CHECK(first == second);
    }
  }
  CHECK(allocations == before);
}

void disjoint_rows_from_two_threads() {
  const std::int32_t games = 48;
  Tron tron({12, 9, 0, 0, 0}, games, 2);
  const auto play = [&](std::int32_t offset) {
    std::vector<std::int32_t> rows, actions(games / 2);
    for (std::int32_t row = offset; row < games; row += 2) rows.push_back(row);
    Arrays arrays(tron.about, games / 2);
    SplitMix64 random{static_cast<std::uint64_t>(offset)};
    CHECK(sdg_observe(tron.batch, rows.data(), games / 2, &arrays.out) == SDG_OK);
    for (int step = 0; step < 150; ++step) {
      choose(arrays, random, actions);
      CHECK(sdg_step(tron.batch, rows.data(), games / 2, actions.data(), arrays.state_id.data(),
                     SDG_AUTO_RESET, &arrays.out) == SDG_OK);
    }
  };
  std::thread even(play, 0);
  std::thread odd(play, 1);
  even.join();
  odd.join();
}

// What batches of one size and the same options can be asked, whoever else asks.
void callers_on_any_rows_leave_games_sound() {
  const std::int32_t games = 24;
  Tron tron({10, 8, 2, 30, 5}, games, 3);
  const auto size = static_cast<std::size_t>(sdg_state_size(tron.batch));
  const auto call = [&](std::uint64_t seed) {
    SplitMix64 random{seed};
    Arrays arrays(tron.about, games);
    std::vector<std::int32_t> order(games), actions(games), moves(games);
    std::vector<std::uint64_t> states(games * size / 8);
    for (std::int32_t row = 0; row < games; ++row) order[static_cast<std::size_t>(row)] = row;
    for (int times = 0; times < 150; ++times) {
      for (std::size_t i = order.size() - 1; i > 0; --i) {
        std::swap(order[i], order[static_cast<std::size_t>(random.below(static_cast<std::int32_t>(i) + 1))]);
      }
      for (std::int32_t& action : actions) action = random.below(6) - 1;
      const bool all = random.below(4) == 0;
      const std::int32_t* rows = all ? nullptr : order.data();
      const std::int32_t count = all ? games : random.below(games + 1);
      auto* bytes = reinterpret_cast<std::uint8_t*>(states.data());
      std::int32_t status = SDG_OK;
      switch (random.below(6)) {
        case 0: status = sdg_reset(tron.batch, rows, count, nullptr, nullptr, &arrays.out); break;
        case 1: status = sdg_observe(tron.batch, rows, count, &arrays.out); break;
        case 2: status = sdg_bot_moves(tron.batch, 3, 2, 20, rows, count, nullptr, moves.data()); break;
        case 3:
          status = sdg_capture(tron.batch, rows, count, bytes);
          if (status == SDG_OK) status = sdg_restore(tron.batch, rows, count, bytes);
          break;
        default: status = sdg_step(tron.batch, rows, count, actions.data(), nullptr, random.below(4), &arrays.out);
      }
      CHECK(status == SDG_OK);
    }
  };
  std::thread callers[] = {std::thread(call, 1), std::thread(call, 2), std::thread(call, 3)};
  for (std::thread& caller : callers) caller.join();
  std::vector<std::uint64_t> states(games * size / 8);
  auto* bytes = reinterpret_cast<std::uint8_t*>(states.data());
  CHECK(sdg_capture(tron.batch, nullptr, games, bytes) == SDG_OK);
  CHECK(sdg_restore(tron.batch, nullptr, games, bytes) == SDG_OK);
}

// A batch that has few numbers left: what takes one is refused in time, and nothing moves.
void no_number_is_given_twice() {
  const std::int32_t games = 3;
  const std::uint64_t most = 100, first = UINT64_C(9) << 44;
  const Tron usual({9, 7, 0, 0, 0}, games, 1);
  const sdg_settings settings{sizeof(sdg_settings), games, 1, kActions, kHistory, 0, first, first};
  const std::uint64_t seeds[games] = {1, 2, 3};
  const auto batch = std::make_unique<Batch<tron::Tron>>(usual.options.data(), settings, seeds, most);
  Arrays arrays(usual.about, games), before(usual.about, games);
  const auto size = static_cast<std::size_t>(sdg_state_size(batch.get()));
  std::vector<std::uint64_t> states(games * size / 8), after(states.size());
  const auto bytes = [](std::vector<std::uint64_t>& words) { return reinterpret_cast<std::uint8_t*>(words.data()); };
  const std::int32_t unknown[games] = {9, 9, 9}, last_row = 2;
  std::vector<char> given(most, 0);
  std::int32_t status = SDG_OK;
  while (true) {
    CHECK(sdg_observe(batch.get(), nullptr, games, &arrays.out) == SDG_OK);
    for (std::size_t row = 0; row < games && status == SDG_OK; ++row) {
      const std::uint64_t number = arrays.state_id[row] - first;
      CHECK(number < most && given[number] == 0);
      given[number] = 1;
    }
    if (status != SDG_OK) break;
    CHECK(sdg_observe(batch.get(), nullptr, games, &before.out) == SDG_OK);
    CHECK(sdg_capture(batch.get(), nullptr, games, bytes(states)) == SDG_OK);
    // Each of these moves ends its game, and the next episode has a number as well.
    status = sdg_step(batch.get(), nullptr, games, unknown, nullptr, SDG_AUTO_RESET, nullptr);
  }
  CHECK(status == SDG_EXHAUSTED && arrays.state_id[2] > first + most - 3 * games);
  CHECK(sdg_reset(batch.get(), &last_row, 1, nullptr, nullptr, nullptr) == SDG_EXHAUSTED);
  CHECK(sdg_reset(batch.get(), nullptr, games, seeds, nullptr, &arrays.out) == SDG_EXHAUSTED);
  CHECK(sdg_step(batch.get(), nullptr, games, unknown, nullptr, SDG_KEEP_ILLEGAL, &arrays.out) == SDG_EXHAUSTED);
  CHECK(sdg_restore(batch.get(), nullptr, games, bytes(states)) == SDG_EXHAUSTED);
  CHECK(sdg_capture(batch.get(), nullptr, games, bytes(after)) == SDG_OK && after == states);
  CHECK(sdg_observe(batch.get(), nullptr, games, &arrays.out) == SDG_OK && arrays == before);
  CHECK(sdg_bot_moves(batch.get(), 3, 1, 9, nullptr, games, nullptr, arrays.counts.data()) == SDG_OK);
}

void arguments_that_make_no_sense_are_refused() {
  Tron tron({10, 8, 0, 0, 0}, 3, 1);
  Arrays arrays(tron.about, 3);
  const std::vector<std::int32_t> actions(3, 0);
  sdg_outputs other = arrays.out;
  other.size -= 8;
  CHECK(sdg_interface_stamp() == SDG_STAMP);
  CHECK(sdg_game_name(1) == nullptr && sdg_game_name(-1) == nullptr);
  CHECK(sdg_name(0, 99, 0) == nullptr && sdg_name(0, SDG_BOT, -1) == nullptr);
  CHECK(sdg_step(nullptr, nullptr, 3, actions.data(), nullptr, 0, nullptr) == SDG_BAD_ARGUMENT);
  CHECK(sdg_step(tron.batch, nullptr, 3, nullptr, nullptr, 0, nullptr) == SDG_BAD_ARGUMENT);
  CHECK(sdg_step(tron.batch, nullptr, 2, actions.data(), nullptr, 0, nullptr) == SDG_BAD_ARGUMENT);
  CHECK(sdg_step(tron.batch, nullptr, 3, actions.data(), nullptr, 64, nullptr) == SDG_BAD_ARGUMENT);
  CHECK(sdg_step(tron.batch, nullptr, 3, actions.data(), nullptr, 0, &other) == SDG_BAD_ARGUMENT);
  CHECK(sdg_step(tron.batch, actions.data(), 0, nullptr, nullptr, 0, nullptr) == SDG_OK);
  CHECK(sdg_observe(tron.batch, nullptr, 3, nullptr) == SDG_BAD_ARGUMENT);
  CHECK(sdg_bot_moves(tron.batch, 4, 0, 0, nullptr, 3, nullptr, arrays.ids.data()) == SDG_BAD_ARGUMENT);
  const std::int64_t options[] = {3, 8, 0, 0, 0};
  CHECK(sdg_describe(0, options, &tron.about) == SDG_BAD_OPTION);
  sdg_settings settings{sizeof(sdg_settings), 1, 1, 1, 0, 0, 0, 0};
  const std::uint64_t seed = 0;
  sdg_batch* batch = nullptr;
  CHECK(sdg_create(0, options, &settings, &seed, &batch) == SDG_BAD_OPTION && batch == nullptr);
  for (const std::int32_t threads : {0, -1, SDG_MOST_THREADS + 1}) {
    settings.num_threads = threads;
    CHECK(sdg_create(0, tron.options.data(), &settings, &seed, &batch) == SDG_BAD_ARGUMENT);
  }
  CHECK(sdg_create(0, nullptr, &settings, &seed, &batch) == SDG_BAD_ARGUMENT && batch == nullptr);
  sdg_free(nullptr);
}

// Tron whose games wait, as they begin, until two do so at the same time.
struct MeetingTron : tron::Tron {
  using Clock = std::chrono::steady_clock;
  static constexpr std::int32_t kGrain = 1;
  static inline std::atomic<int> beginning{0};
  static inline std::atomic<bool> met{false};
  static inline Clock::time_point patience;

  static void expect_a_meeting() {
    met = false;
    patience = Clock::now() + std::chrono::seconds(20);
  }
  static void begin(const Rules& rules, State& state, std::uint64_t seed) noexcept {
    ++beginning;
    while (!met && Clock::now() < patience) {
      if (beginning > 1) met = true;
      std::this_thread::yield();
    }
    --beginning;
    tron::Tron::begin(rules, state, seed);
  }
};

void games_begin_on_all_threads() {
  const std::int64_t options[] = {9, 7, 0, 0, 0};
  const sdg_settings settings{sizeof(sdg_settings), 64, 2, 4, 0, 0, 0, 0};
  const std::vector<std::uint64_t> seeds(64, 1);
  MeetingTron::expect_a_meeting();
  Batch<MeetingTron> batch(options, settings, seeds.data());
  CHECK(MeetingTron::met);
  MeetingTron::expect_a_meeting();
  CHECK(batch.reset(nullptr, 64, nullptr, nullptr, nullptr) == SDG_OK);
  CHECK(MeetingTron::met);
}

}  // namespace

int main() {
  games_begin_on_all_threads();
  threads_change_nothing_and_nothing_is_allocated({30, 20, 0, 0, 0});
  threads_change_nothing_and_nothing_is_allocated({9, 7, 2, 40, 6});
  threads_change_nothing_and_nothing_is_allocated({64, 64, 64, 0, 0});
  disjoint_rows_from_two_threads();
  callers_on_any_rows_leave_games_sound();
  no_number_is_given_twice();
  arguments_that_make_no_sense_are_refused();
}
