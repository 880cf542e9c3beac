// Tron as a Game: what its options, names and events are, and how it is played.
#pragma once

#include "tron.hpp"
#include "tron_bots.hpp"

namespace superdex::tron {

inline constexpr Option kOptions[] = {{"width", 30, 4, 64},
                                      {"height", 20, 4, kMostRows},
                                      {"vision_radius", 0, 0, 64},
                                      {"max_plies", 0, 0, 1 << 20},
                                      {"opening_plies", 0, 0, 1024}};
inline constexpr const char* kActions[] = {"up", "right", "down", "left"};
inline constexpr const char* kActionFeatures[] = {"direction", "cell", "turn", "crash", "room", "margin"};
// type: 0 a move, 1 a crash. cause of a crash: 1 a wall, 2 the own trail, 3 the other's, 4 an unknown
// move; 0 for a move. −1 for what the seat does not see.
inline constexpr const char* kEventFeatures[] = {"ply", "type", "seat", "source", "target", "direction", "cause"};
inline constexpr const char* kAffectedFeatures[] = {"seat", "cell", "alive"};

struct Tron {
  using Rules = tron::Rules;
  using State = tron::State;
  using View = tron::View;
  using BoardEntry = std::uint8_t;
  static constexpr const char* kName = "tron";
  static constexpr std::int32_t kSeats = 2;
  static constexpr std::int32_t kGrain = 8;
  static constexpr std::int32_t kSearchGrain = 2;

  static std::span<const Option> options() noexcept { return kOptions; }

  static std::span<const char* const> names(std::int32_t kind) noexcept {
    switch (kind) {
      case SDG_BOARD_CHANNEL: return kPlaneNames;
      case SDG_STATE_FIELD: return kStateFields;
      case SDG_ACTION: return kActions;
      case SDG_ACTION_FEATURE: return kActionFeatures;
      case SDG_EVENT_FEATURE: return kEventFeatures;
      case SDG_AFFECTED_FEATURE: return kAffectedFeatures;
      case SDG_BOT: return kBots;
      default: return {};
    }
  }

  static void describe(const Rules& rules, sdg_description& about) noexcept {
    about.board_ndim = 3;
    about.board_shape[0] = kPlanes;
    about.board_shape[1] = rules.size.height;
    about.board_shape[2] = rules.size.width;
    about.num_state_fields = std::size(kStateFields);
    about.num_actions = kMoves;
    about.most_legal_actions = kMoves;
    about.num_action_features = std::size(kActionFeatures);
    about.num_action_args = 2;
    about.num_event_features = std::size(kEventFeatures);
    about.num_affected = 2;
    about.num_affected_features = std::size(kAffectedFeatures);
    // Each ply but the last fills a cell; two are filled at the start.
    const std::int32_t most = rules.size.cells() - 1;
    const std::int32_t limit = rules.opening_plies + rules.max_plies;
    about.most_plies = rules.max_plies > 0 ? std::min(limit, most) : most;
  }

  // Seat 0 starts in the left half, not at its edges; seat 1 where a half turn of the board takes it.
  // The opening that follows enters free cells only, and is cut short where a seat is boxed in: a game
  // that begins goes on. It is part of the position and no event of the episode.
  static void begin(const Rules& rules, State& state, std::uint64_t seed) noexcept {
    state = State{};
    state.random.counter = seed;
    const std::int32_t x = 1 + state.random.below(rules.size.width / 2 - 1);
    const std::int32_t y = 1 + state.random.below(rules.size.height - 2);
    const std::int32_t direction = state.random.below(kMoves);
    state.head[0] = y * rules.size.width + x;
    state.head[1] = rules.size.cells() - 1 - state.head[0];
    state.direction[0] = direction;
    state.direction[1] = (direction + 2) % kMoves;
    for (std::int32_t seat = 0; seat < kSeats; ++seat) state.lay(rules.size, seat, state.head[seat]);
    std::array<std::int32_t, kMoves> moves{};
    while (state.plies < rules.opening_plies) {
      const std::int32_t count = free_moves(rules, state, moves.data());
      if (count == 0) break;
      const std::int32_t move = moves[static_cast<std::size_t>(state.random.below(count))];
      state.direction[state.seat] = move;
      enter(rules.size, state, rules.size.beside(state.head[state.seat], move));
      end_ply(state);
    }
  }

  static void play(const Rules& rules, State& state, std::int32_t move, EventSink& events) noexcept {
    const Size size = rules.size;
    const std::int32_t mover = state.seat;
    const std::int32_t source = state.head[mover];
    const bool known = move >= 0 && move < kMoves;
    const std::int32_t target = known ? size.beside(source, move) : -1;
    std::int32_t cause = 0;
    if (!known) {
      cause = 4;
    } else if (target < 0) {
      cause = 1;
    } else if (state.on_trail(size, mover, target)) {
      cause = 2;
    } else if (state.on_trail(size, 1 - mover, target)) {
      cause = 3;
    }
    if (known) state.direction[mover] = move;
    if (cause == 0) {
      enter(size, state, target);
    } else {
      state.over = 1;
      state.winner = 1 - mover;
    }
    tell(rules, state, events, {state.plies, cause != 0, mover, source, target, known ? move : -1, cause});
    end_ply(state);
    if (rules.out_of_plies(state.plies)) state.over = 1;
  }

  static bool over(const State& state) noexcept { return state.over != 0; }
  static std::int32_t seat(const State& state) noexcept { return state.seat; }
  static std::int32_t plies(const State& state) noexcept { return state.plies; }
  static float score(const State& state, std::int32_t seat) noexcept {
    if (state.winner < 0) return 0;
    return state.winner == seat ? 1.0F : -1.0F;
  }

  static std::int32_t legal(const Rules& rules, const State& state, std::int32_t* ids) noexcept {
    return legal_moves(rules, state, ids);
  }

  // Whether moves can have led here, as far as numbers say: no cell lies off the board, and each ply
  // but a crash has laid one. How the trails run is not followed.
  static bool sound(const Rules& rules, const State& state) noexcept {
    const Size size = rules.size;
    std::int32_t laid = 0;
    for (std::int32_t y = 0; y < kMostRows; ++y) {
      const auto r = static_cast<std::size_t>(y);
      const std::uint64_t allowed = y < size.height ? size.full_row() : 0;
      if (((state.trail[0][r] | state.trail[1][r]) & ~allowed) != 0) return false;
      if ((state.trail[0][r] & state.trail[1][r]) != 0) return false;
      laid += std::popcount(state.trail[0][r] | state.trail[1][r]);
    }
    for (std::int32_t seat = 0; seat < kSeats; ++seat) {
      if (state.head[seat] < 0 || state.head[seat] >= size.cells()) return false;
      if (!state.on_trail(size, seat, state.head[seat])) return false;
      if (state.direction[seat] < 0 || state.direction[seat] >= kMoves) return false;
    }
    const bool crashed = state.winner != -1;
    const bool out_of_plies = rules.out_of_plies(state.plies);
    if (state.plies < 0 || state.plies > size.cells() || laid != kSeats + state.plies - crashed) return false;
    if (out_of_plies && rules.out_of_plies(state.plies - 1)) return false;
    return state.seat == state.plies % kSeats && (!crashed || state.winner == state.seat) &&
           state.over == (crashed || out_of_plies);
  }

  static std::int32_t bot_move(const Rules& rules, const State& state, std::int32_t bot,
                               std::int32_t depth, std::int32_t nodes) noexcept {
    return choose_move(rules, state, bot, depth, nodes);
  }

 private:
  static void enter(Size size, State& state, std::int32_t cell) noexcept {
    state.head[state.seat] = cell;
    state.lay(size, state.seat, cell);
  }
  static void end_ply(State& state) noexcept {
    ++state.plies;
    state.seat = 1 - state.seat;
  }

  struct Event {
    std::int32_t ply, type, seat, source, target, direction, cause;
  };

  // Tell each seat what it sees of an event: the mover all of it, the other the cells in its sight.
  static void tell(const Rules& rules, const State& state, EventSink& events, Event event) noexcept {
    if (!events.on()) return;
    for (std::int32_t seat = 0; seat < kSeats; ++seat) {
      const bool mover = seat == event.seat;
      const bool source = mover || sees(rules, state, seat, event.source);
      const bool target = event.target >= 0 && (mover || sees(rules, state, seat, event.target));
      if (!source && !target) continue;
      // A direction with one end would give the other away; the wall is no secret.
      const bool both = source && (target || event.target < 0);
      const std::int32_t features[] = {event.ply, event.type, event.seat, source ? event.source : -1,
                                       target ? event.target : -1, both ? event.direction : -1,
                                       both || target ? event.cause : -1};
      std::array<std::int32_t, 6> affected;
      std::size_t used = 0;
      const auto add = [&](std::int32_t whose, std::int32_t cell, std::int32_t alive) {
        affected[used++] = whose;
        affected[used++] = cell;
        affected[used++] = alive;
      };
      if (event.type == 0 && target) add(event.seat, event.target, 1);
      if (event.type == 1 && source) add(event.seat, event.source, 0);
      if (event.cause == 3 && target) add(1 - event.seat, event.target, 1);
      events.add(seat, features, {affected.data(), used});
    }
  }
};

static_assert(Game<Tron>);

}  // namespace superdex::tron
