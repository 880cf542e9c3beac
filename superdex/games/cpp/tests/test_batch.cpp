// Batches through the C functions: threads, memory, states, and arguments that make no sense.

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "check.hpp"
#include "superdex/random.hpp"
#include "superdex_game.h"

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

using superdex::SplitMix64;

constexpr std::int32_t kHistory = 3;
constexpr std::int32_t kActions = 4;

// All outputs of some rows of Tron.
struct Arrays {
  Arrays(const sdg_description& about, std::int32_t rows) : n(static_cast<std::size_t>(rows)) {
    const std::size_t cells = static_cast<std::size_t>(about.board_shape[1] * about.board_shape[2]);
    board.resize(n * 8 * cells);
    final_board = board;
    state.resize(n * static_cast<std::size_t>(about.num_state_fields));
    final_state = state;
    ids.resize(n * kActions);
    features.resize(n * kActions * static_cast<std::size_t>(about.num_action_features));
    args.resize(n * kActions * 2);
    mask.resize(n * kActions);
    counts.resize(n);
    events.resize(n * kHistory * static_cast<std::size_t>(about.num_event_features));
    sequence.resize(n * kHistory);
    affected.resize(n * kHistory * 6);
    affected_mask.resize(n * kHistory * 2);
    reward.resize(n);
    terminated.resize(n);
    state_id.resize(n);
    out.size = sizeof out;
    out.board = board.data();
    out.final_board = final_board.data();
    out.state = state.data();
    out.final_state = final_state.data();
    out.action_id = ids.data();
    out.action_features = features.data();
    out.action_arg_mask = args.data();
    out.action_mask = mask.data();
    out.legal_action_count = counts.data();
    out.event_features = events.data();
    out.event_sequence = sequence.data();
    out.event_affected = affected.data();
    out.event_affected_mask = affected_mask.data();
    out.reward = reward.data();
    out.terminated = terminated.data();
    out.state_id = state_id.data();
  }
  bool operator==(const Arrays& other) const {
    return board == other.board && state == other.state && ids == other.ids &&
           features == other.features && args == other.args && mask == other.mask &&
           counts == other.counts && events == other.events && sequence == other.sequence &&
           affected == other.affected && affected_mask == other.affected_mask &&
           reward == other.reward && terminated == other.terminated && state_id == other.state_id;
  }
  std::size_t n;
  std::vector<std::uint8_t> board, final_board, args, mask, affected_mask, terminated;
  std::vector<std::int32_t> state, final_state, ids, features, counts, events, affected;
  std::vector<std::uint64_t> sequence, state_id;
  std::vector<float> reward;
  sdg_outputs out{};
};

struct Tron {
  Tron(std::vector<std::int64_t> values, std::int32_t games, std::int32_t threads)
      : options(std::move(values)), num_games(games) {
    about.size = sizeof about;
    CHECK(sdg_describe(0, options.data(), &about) == SDG_OK);
    std::vector<std::uint64_t> seeds(static_cast<std::size_t>(games));
    for (std::size_t i = 0; i < seeds.size(); ++i) seeds[i] = i;
    const sdg_settings settings{sizeof(sdg_settings), games, threads, kActions, kHistory, 30, 0, 0};
    CHECK(sdg_create(0, options.data(), &settings, seeds.data(), &batch) == SDG_OK);
  }
  ~Tron() { sdg_free(batch); }
  Tron(const Tron&) = delete;
  Tron& operator=(const Tron&) = delete;

  std::vector<std::int64_t> options;
  std::int32_t num_games;
  sdg_description about{};
  sdg_batch* batch = nullptr;
};

// Mostly legal actions, now and then any.
void choose(const Arrays& arrays, SplitMix64& random, std::vector<std::int32_t>& actions) {
  for (std::size_t i = 0; i < arrays.n; ++i) {
    const std::int32_t count = arrays.counts[i];
    actions[i] = count > 0 && random.below(20) > 0
                     ? arrays.ids[i * kActions + static_cast<std::size_t>(random.below(count))]
                     : random.below(8) - 2;
  }
}

void threads_change_nothing_and_nothing_is_allocated(std::vector<std::int64_t> options) {
  const std::int32_t games = 64;
  Tron one(options, games, 1);
  Tron three(options, games, 3);
  Arrays first(one.about, games);
  Arrays second(one.about, games);
  std::vector<std::int32_t> actions(games), moves(games);
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
  Tron tron({12, 9, 0, 0}, games, 2);
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

void bytes_of_any_kind_are_survived() {
  const std::int32_t games = 4;
  Tron tron({10, 8, 2, 0}, games, 1);
  Arrays arrays(tron.about, games);
  const auto size = static_cast<std::size_t>(sdg_state_size(tron.batch));
  CHECK(size % 8 == 0);
  std::vector<std::uint8_t> states(size * games);
  std::vector<std::int32_t> actions(games, 0), moves(games);
  CHECK(sdg_capture(tron.batch, nullptr, games, states.data()) == SDG_OK);
  CHECK(sdg_restore(tron.batch, nullptr, games, states.data()) == SDG_OK);
  SplitMix64 random{9};
  std::vector<std::uint8_t> bad = states;
  for (int trial = 0; trial < 300; ++trial) {
    bad = states;
    for (int change = 0; change <= trial % 5; ++change) {
      bad[static_cast<std::size_t>(random.next() % bad.size())] ^= static_cast<std::uint8_t>(1 + random.below(255));
    }
    const std::int32_t status = sdg_restore(tron.batch, nullptr, games, bad.data());
    CHECK(status == SDG_BAD_STATE || bad == states);
    CHECK(sdg_step(tron.batch, nullptr, games, actions.data(), nullptr, 0, &arrays.out) == SDG_OK);
    CHECK(sdg_bot_moves(tron.batch, 3, 0, 20, nullptr, games, nullptr, moves.data()) == SDG_OK);
  }
}

void arguments_that_make_no_sense_are_refused() {
  Tron tron({10, 8, 0, 0}, 3, 1);
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
  CHECK(sdg_observe(tron.batch, nullptr, 3, nullptr) == SDG_BAD_ARGUMENT);
  CHECK(sdg_bot_moves(tron.batch, 4, 0, 0, nullptr, 3, nullptr, arrays.ids.data()) == SDG_BAD_ARGUMENT);
  const std::int64_t options[] = {3, 8, 0, 0};
  CHECK(sdg_describe(0, options, &tron.about) == SDG_BAD_OPTION);
  sdg_settings settings{sizeof(sdg_settings), 1, 1, 1, 0, 0, 0, 0};
  const std::uint64_t seed = 0;
  sdg_batch* batch = nullptr;
  CHECK(sdg_create(0, options, &settings, &seed, &batch) == SDG_BAD_OPTION && batch == nullptr);
  settings.num_threads = 0;
  CHECK(sdg_create(0, tron.options.data(), &settings, &seed, &batch) == SDG_BAD_ARGUMENT);
  sdg_free(nullptr);
}

}  // namespace

int main() {
  threads_change_nothing_and_nothing_is_allocated({30, 20, 0, 0});
  threads_change_nothing_and_nothing_is_allocated({9, 7, 2, 40});
  threads_change_nothing_and_nothing_is_allocated({64, 64, 64, 0});
  disjoint_rows_from_two_threads();
  bytes_of_any_kind_are_survived();
  arguments_that_make_no_sense_are_refused();
}
