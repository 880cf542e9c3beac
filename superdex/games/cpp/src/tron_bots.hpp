// Players of Tron. They see what the seat to move sees, and the same position gives the same move.
#pragma once

#include <array>
#include <cstdint>

#include "tron.hpp"

namespace superdex::tron {

inline constexpr const char* kBots[] = {"random", "flood_fill", "voronoi", "alpha_beta"};
enum Bot : std::int32_t { kRandom, kFloodFill, kVoronoi, kAlphaBeta };

// Alpha-beta with iterative deepening. Depth and a number of positions bound it, not a clock; an
// iteration that runs out of positions is dropped whole. Leaves are judged by the territory margin.
class Search {
 public:
  Search(const Perceived& now, std::int32_t depth, std::int32_t nodes) noexcept
      : size_(now.size), free_(now.free), own_(now.own), other_(now.other),
        depth_(depth), nodes_(nodes) {}

  // Return the best of the moves, which are tried in this order at first; all enter free cells.
  std::int32_t best(std::int32_t* moves, std::int32_t count) noexcept {
    for (std::int32_t depth = 1; depth <= depth_ && count > 1; ++depth) {
      std::array<std::int32_t, kMoves> values{};
      std::int32_t alpha = -kInfinity;
      for (std::int32_t i = 0; i < count; ++i) {
        const std::int32_t cell = size_.beside(own_, moves[i]);
        free_.remove(size_, cell);
        const std::int32_t value = -value_of(other_, cell, depth - 1, -kInfinity, -alpha);
        free_.add(size_, cell);
        if (nodes_ < 0) return moves[0];
        values[static_cast<std::size_t>(i)] = value;
        alpha = std::max(alpha, value);
      }
      sort(moves, values, count);
      // A forced end is not seen better by looking further.
      if (values[0] > kWin - kMostPlies || values[0] < -kWin + kMostPlies) break;
    }
    return moves[0];
  }

 private:
  static constexpr std::int32_t kInfinity = 1 << 28;
  static constexpr std::int32_t kWin = 1 << 24;
  static constexpr std::int32_t kMostPlies = 1 << 13;

  // The value for the cycle to move; what is out of the window may be a bound.
  std::int32_t value_of(std::int32_t mover, std::int32_t other, std::int32_t depth, std::int32_t alpha,
                        std::int32_t beta) noexcept {
    if (--nodes_ < 0) return 0;
    if (depth == 0) return margin(size_, free_, mover, other);
    std::int32_t best = -kInfinity;
    for (std::int32_t move = 0; move < kMoves; ++move) {
      const std::int32_t cell = size_.beside(mover, move);
      if (cell < 0 || !free_.has(size_, cell)) continue;
      free_.remove(size_, cell);
      const std::int32_t value = -value_of(other, cell, depth - 1, -beta, -alpha);
      free_.add(size_, cell);
      if (nodes_ < 0) return 0;
      best = std::max(best, value);
      alpha = std::max(alpha, value);
      if (alpha >= beta) break;
    }
    // Nowhere to go: lost, and the later the better.
    return best > -kInfinity ? best : -kWin - depth;
  }

  // Best first; equals keep their order.
  static void sort(std::int32_t* moves, std::array<std::int32_t, kMoves>& values, std::int32_t count) noexcept {
    for (std::int32_t i = 1; i < count; ++i) {
      for (std::int32_t k = i; k > 0; --k) {
        auto& later = values[static_cast<std::size_t>(k)];
        auto& earlier = values[static_cast<std::size_t>(k - 1)];
        if (later <= earlier) break;
        std::swap(later, earlier);
        std::swap(moves[k], moves[k - 1]);
      }
    }
  }

  Size size_;
  Cells free_;
  std::int32_t own_;
  std::int32_t other_;
  std::int32_t depth_;
  std::int32_t nodes_;
};

// Return a bot's move; the game is not over.
inline std::int32_t choose_move(const Rules& rules, const State& state, std::int32_t bot,
                                std::int32_t depth, std::int32_t nodes) noexcept {
  std::array<std::int32_t, kMoves> moves{};
  const std::int32_t count = legal_moves(rules, state, moves.data());
  if (count == 1) return moves[0];
  // Draws among equals come from a copy of the game's generator, set apart by the ply: asking a bot
  // leaves the game as it is.
  SplitMix64 draw{sdg_mix(state.random.counter + static_cast<std::uint64_t>(state.plies))};
  std::swap(moves[0], moves[static_cast<std::size_t>(draw.below(count))]);
  if (bot == kRandom) return moves[0];
  const Perceived now(rules, state);
  if (bot == kAlphaBeta && now.other >= 0) {
    const std::int32_t usual_depth = 8;
    const std::int32_t usual_nodes = 400;
    return Search(now, depth > 0 ? depth : usual_depth, nodes > 0 ? nodes : usual_nodes)
        .best(moves.data(), count);
  }
  const std::array<Outlook, kMoves> all = outlooks(now);
  const auto worth = [&](std::int32_t move) {
    const Outlook& outlook = all[static_cast<std::size_t>(move)];
    return bot == kFloodFill ? outlook.room : outlook.margin;
  };
  return *std::max_element(moves.begin(), moves.begin() + count,
                           [&](std::int32_t a, std::int32_t b) { return worth(a) < worth(b); });
}

}  // namespace superdex::tron
