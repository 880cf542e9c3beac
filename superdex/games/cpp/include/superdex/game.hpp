// What a game is, as the batches of batch.hpp take it.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

#include "superdex_game.h"
#include "superdex/event_log.hpp"

namespace superdex {

// An option of a game: a whole number in a range.
struct Option {
  const char* name;
  std::int64_t usual;
  std::int64_t least;
  std::int64_t greatest;
};

// A game is a class of static functions over two types:
//   Rules   what its options come to, one per batch, never changed; made from the options' values
//   State   one game in progress: plain data of fixed size without padding, so that it can be copied
//           and captured as bytes; its random generator is one of its fields
// and a third that lives for one observation:
//   View    what the seat to move sees; made with (rules, state, whether its moves are asked for)
//
// Nothing throws and nothing allocates. play() takes any number for an action: what the rules forbid
// leads to what the rules say. It adds an event once for each seat that sees it. A seat's reward is by
// how much play() changed its score(). legal() writes ids in a fixed order; it has some unless over(),
// which no game is when it begins. sound() refuses every state that could lead out of an array or past
// the greatest number, whoever made its bytes; batches check the rest (captured.hpp).
template <class G>
concept Game =
    std::is_trivially_copyable_v<typename G::State> &&
    std::has_unique_object_representations_v<typename G::State> &&
    std::constructible_from<typename G::Rules, const std::int64_t*> &&
    (std::is_same_v<typename G::BoardEntry, std::uint8_t> ||
     std::is_same_v<typename G::BoardEntry, std::int32_t>) &&
    requires(const typename G::Rules& rules, typename G::State& state,
             const typename G::State& seen, const typename G::View& view, EventSink& events,
             sdg_description& description, std::int32_t number, std::int32_t* numbers,
             std::uint8_t* bytes, typename G::BoardEntry* board) {
      { G::kName } -> std::convertible_to<const char*>;
      { G::kSeats } -> std::convertible_to<std::int32_t>;
      { G::kGrain } -> std::convertible_to<std::int32_t>;  // games worth one turn of a thread
      { G::kSearchGrain } -> std::convertible_to<std::int32_t>;  // the same for bots
      { G::options() } noexcept -> std::same_as<std::span<const Option>>;
      { G::names(number) } noexcept -> std::same_as<std::span<const char* const>>;
      { G::describe(rules, description) } noexcept;
      { G::begin(rules, state, std::uint64_t{}) } noexcept;
      { G::play(rules, state, number, events) } noexcept;  // action
      { G::over(seen) } noexcept -> std::same_as<bool>;
      { G::seat(seen) } noexcept -> std::same_as<std::int32_t>;
      { G::plies(seen) } noexcept -> std::same_as<std::int32_t>;
      { G::score(seen, number) } noexcept -> std::same_as<float>;  // seat
      { G::legal(rules, seen, numbers) } noexcept -> std::same_as<std::int32_t>;
      { G::sound(rules, seen) } noexcept -> std::same_as<bool>;  // for states that came as bytes
      // bot, depth, nodes; never called where names(SDG_BOT) is empty
      { G::bot_move(rules, seen, number, number, number) } noexcept -> std::same_as<std::int32_t>;
      requires std::is_nothrow_constructible_v<typename G::View, const typename G::Rules&,
                                               const typename G::State&, bool>;
      { view.board(board) } noexcept;
      { view.state(numbers) } noexcept;
      { view.action(number, numbers, bytes) } noexcept;  // id, features, argument mask; either null
    };

// A game's own description, with the seats and the board's type that the game is compiled for. What it
// leaves out is 0, and progress_action −1.
template <Game G>
sdg_description described(const typename G::Rules& rules) noexcept {
  sdg_description about{};
  about.size = sizeof about;
  about.progress_action = -1;
  G::describe(rules, about);
  about.num_seats = G::kSeats;
  about.board_dtype = std::is_same_v<typename G::BoardEntry, std::uint8_t> ? SDG_UINT8 : SDG_INT32;
  return about;
}

}  // namespace superdex
