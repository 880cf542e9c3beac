// Batches of Tron for native tests, with arrays for everything that they write.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "check.hpp"
#include "superdex/random.hpp"
#include "superdex_game.h"

namespace superdex::testing {

inline constexpr std::int32_t kHistory = 3;
inline constexpr std::int32_t kActions = 4;

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
    truncated.resize(n);
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
    out.truncated = truncated.data();
    out.state_id = state_id.data();
  }
  bool operator==(const Arrays& other) const {
    return board == other.board && state == other.state && ids == other.ids &&
           features == other.features && args == other.args && mask == other.mask &&
           counts == other.counts && events == other.events && sequence == other.sequence &&
           affected == other.affected && affected_mask == other.affected_mask &&
           reward == other.reward && terminated == other.terminated &&
           truncated == other.truncated && state_id == other.state_id;
  }
  std::size_t n;
  std::vector<std::uint8_t> board, final_board, args, mask, affected_mask, terminated, truncated;
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
inline void choose(const Arrays& arrays, SplitMix64& random, std::vector<std::int32_t>& actions) {
  for (std::size_t i = 0; i < arrays.n; ++i) {
    const std::int32_t count = arrays.counts[i];
    actions[i] = count > 0 && random.below(20) > 0
                     ? arrays.ids[i * kActions + static_cast<std::size_t>(random.below(count))]
                     : random.below(8) - 2;
  }
}

}  // namespace superdex::testing
