// Tron light cycles: two cycles move in turn and leave trails; who hits a wall or a trail loses.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "superdex/game.hpp"
#include "superdex/random.hpp"
#include "tron_board.hpp"

namespace superdex::tron {

inline constexpr std::int32_t kMoves = 4;  // 0 up, 1 right, 2 down, 3 left
inline constexpr std::int32_t kPlanes = 8;

struct Rules {
  explicit Rules(const std::int64_t* options)
      : size{static_cast<std::int32_t>(options[0]), static_cast<std::int32_t>(options[1])},
        vision_radius(static_cast<std::int32_t>(options[2])),
        max_plies(static_cast<std::int32_t>(options[3])),
        opening_plies(static_cast<std::int32_t>(options[4])) {}

  // Whether a game with so many plies is a draw. Those of the opening are not the players'. An opening
  // that was cut short needs no other limit: the ply after it is a crash.
  [[nodiscard]] bool out_of_plies(std::int32_t plies) const noexcept {
    return max_plies > 0 && plies >= opening_plies + max_plies;
  }

  Size size;
  std::int32_t vision_radius;  // 0: everything is seen
  std::int32_t max_plies;      // after so many of the players the game is a draw; 0: no limit
  std::int32_t opening_plies;  // random moves at the start
};

// One game. Trails hold every cell that a cycle has been on, its head included.
struct State {
  std::array<std::array<std::uint64_t, kMostRows>, 2> trail{};
  SplitMix64 random;
  std::int32_t head[2] = {};
  std::int32_t direction[2] = {};
  std::int32_t seat = 0;  // to move
  std::int32_t plies = 0;
  std::int32_t over = 0;
  std::int32_t winner = -1;  // −1 also for a draw

  [[nodiscard]] bool on_trail(Size size, std::int32_t seat_of, std::int32_t cell) const noexcept {
    return ((trail[static_cast<std::size_t>(seat_of)][static_cast<std::size_t>(size.y(cell))] >>
             size.x(cell)) & 1) != 0;
  }
  void lay(Size size, std::int32_t seat_of, std::int32_t cell) noexcept {
    trail[static_cast<std::size_t>(seat_of)][static_cast<std::size_t>(size.y(cell))] |=
        std::uint64_t{1} << size.x(cell);
  }
};

// Whether a seat sees a cell: it lies in the square of its vision around its own head.
inline bool sees(const Rules& rules, const State& state, std::int32_t seat, std::int32_t cell) noexcept {
  if (rules.vision_radius == 0) return true;
  const std::int32_t head = state.head[seat];
  return std::abs(rules.size.x(cell) - rules.size.x(head)) <= rules.vision_radius &&
         std::abs(rules.size.y(cell) - rules.size.y(head)) <= rules.vision_radius;
}

// The game as the seat to move knows it. Cells that it does not see count as free, and a cycle that it
// does not see as absent, so that nothing drawn from this tells more than it sees.
struct Perceived {
  Perceived(const Rules& rules, const State& state) noexcept
      : size(rules.size), seen(size, size.full_row()), free(size), own(state.head[state.seat]),
        direction(state.direction[state.seat]), other(state.head[1 - state.seat]) {
    if (rules.vision_radius > 0) {
      const std::int32_t left = std::max(0, size.x(own) - rules.vision_radius);
      const std::int32_t right = std::min(size.width - 1, size.x(own) + rules.vision_radius);
      const std::uint64_t columns = (~std::uint64_t{0} >> (63 - (right - left))) << left;
      for (std::int32_t y = 0; y < size.height; ++y) {
        seen.row(y) = std::abs(y - size.y(own)) <= rules.vision_radius ? columns : 0;
      }
      if (!sees(rules, state, state.seat, other)) other = -1;
    }
    for (std::int32_t y = 0; y < size.height; ++y) {
      const auto r = static_cast<std::size_t>(y);
      free.row(y) = size.full_row() & ~((state.trail[0][r] | state.trail[1][r]) & seen.row(y));
    }
  }

  // The cell that a move enters if it is free, else −1. Cells beside the head are always seen.
  [[nodiscard]] std::int32_t entered(std::int32_t move) const noexcept {
    const std::int32_t cell = size.beside(own, move);
    return cell >= 0 && free.has(size, cell) ? cell : -1;
  }

  Size size;
  Cells seen;
  Cells free;
  std::int32_t own;
  std::int32_t direction;
  std::int32_t other;
};

// What a move leads to: `room` counts the free cells connected with the one it enters, `margin` how
// many more cells the mover enters first than the other, who moves next. A crash has no room and the
// worst margin.
struct Outlook {
  std::int32_t room;
  std::int32_t margin;
};

// The outlook of all four moves. Moves into one region have the same room, which is found once.
inline std::array<Outlook, kMoves> outlooks(const Perceived& now) noexcept {
  std::array<Outlook, kMoves> all;
  all.fill({0, -now.size.cells()});
  Cells region(now.size);
  std::int32_t room = 0;
  for (std::int32_t move = 0; move < kMoves; ++move) {
    const std::int32_t cell = now.entered(move);
    if (cell < 0) continue;
    if (!region.has(now.size, cell)) {
      region = flood(now.size, now.free, cell);
      room = region.count(now.size) - 1;
    }
    Cells free = now.free;
    free.remove(now.size, cell);
    all[static_cast<std::size_t>(move)] = {room, -margin(now.size, free, now.other, cell)};
  }
  return all;
}

// The moves of the seat to move into free cells; none where it is boxed in.
inline std::int32_t free_moves(const Rules& rules, const State& state, std::int32_t* ids) noexcept {
  std::int32_t count = 0;
  for (std::int32_t move = 0; move < kMoves; ++move) {
    const std::int32_t cell = rules.size.beside(state.head[state.seat], move);
    if (cell >= 0 && !state.on_trail(rules.size, 0, cell) && !state.on_trail(rules.size, 1, cell)) {
      ids[count++] = move;
    }
  }
  return count;
}

// Legal are the moves into free cells; a cycle that is boxed in may only go straight on, and crash.
inline std::int32_t legal_moves(const Rules& rules, const State& state, std::int32_t* ids) noexcept {
  if (state.over != 0) return 0;
  std::int32_t count = free_moves(rules, state, ids);
  if (count == 0) ids[count++] = state.direction[state.seat];
  return count;
}

inline constexpr const char* kStateFields[] = {
    "ply", "seat", "over", "winner", "own_cell", "own_direction", "other_cell", "other_direction",
    "cell_up", "cell_right", "cell_down", "cell_left", "legal_up", "legal_right", "legal_down",
    "legal_left", "room_up", "room_right", "room_down", "room_left", "margin_up", "margin_right",
    "margin_down", "margin_left"};
inline constexpr const char* kPlaneNames[] = {"own_head", "own_trail", "other_head", "other_trail",
                                              "free", "seen", "own_territory", "other_territory"};

// The observation of the seat to move.
class View {
 public:
  View(const Rules& rules, const State& state, bool moves) noexcept
      : state_(state), now_(rules, state) {
    legal_count_ = legal_moves(rules, state, legal_.data());
    if (moves && state.over == 0) outlooks_ = outlooks(now_);
  }

  void board(std::uint8_t* planes) const noexcept {
    const Size size = now_.size;
    const Territory territory = divide(size, now_.free, now_.own, now_.other);
    const auto own = static_cast<std::size_t>(state_.seat);
    for (std::int32_t y = 0; y < size.height; ++y) {
      const auto r = static_cast<std::size_t>(y);
      const std::uint64_t seen = now_.seen.row(y);
      const std::array<std::uint64_t, kPlanes> rows = {
          head_row(now_.own, y),
          state_.trail[own][r] & seen,
          head_row(now_.other, y),
          state_.trail[1 - own][r] & seen,
          now_.free.row(y) & seen,
          seen,
          territory.first.row(y),
          territory.second.row(y)};
      for (std::size_t plane = 0; plane < kPlanes; ++plane) {
        unpack(rows[plane], planes + (plane * static_cast<std::size_t>(size.height) + r) *
                                         static_cast<std::size_t>(size.width));
      }
    }
  }

  void state(std::int32_t* fields) const noexcept {
    const std::int32_t first[] = {
        state_.plies, state_.seat, state_.over, state_.winner, now_.own, now_.direction, now_.other,
        now_.other >= 0 ? state_.direction[1 - state_.seat] : -1};
    fields = std::copy(std::begin(first), std::end(first), fields);
    for (std::int32_t move = 0; move < kMoves; ++move) {
      const auto m = static_cast<std::size_t>(move);
      fields[m] = now_.size.beside(now_.own, move);
      fields[kMoves + m] = is_legal(move);
      fields[2 * kMoves + m] = outlooks_[m].room;
      fields[3 * kMoves + m] = outlooks_[m].margin;
    }
  }

  // Features: the arguments direction and cell, then turn, crash, room, margin. Both are null-safe.
  void action(std::int32_t move, std::int32_t* features, std::uint8_t* args) const noexcept {
    const std::int32_t cell = now_.size.beside(now_.own, move);
    if (features != nullptr) {
      const Outlook& outlook = outlooks_[static_cast<std::size_t>(move)];
      const std::int32_t values[] = {move, cell, (move - now_.direction + kMoves) % kMoves,
                                     now_.entered(move) < 0, outlook.room, outlook.margin};
      std::copy(std::begin(values), std::end(values), features);
    }
    if (args != nullptr) {
      args[0] = 1;
      args[1] = cell >= 0;
    }
  }

 private:
  [[nodiscard]] std::uint64_t head_row(std::int32_t cell, std::int32_t y) const noexcept {
    return cell >= 0 && now_.size.y(cell) == y ? std::uint64_t{1} << now_.size.x(cell) : 0;
  }
  [[nodiscard]] bool is_legal(std::int32_t move) const noexcept {
    return std::find(legal_.begin(), legal_.begin() + legal_count_, move) !=
           legal_.begin() + legal_count_;
  }
  // Write bits as bytes of 0 and 1, eight at a time: copies of the eight bits, one kept in each byte.
  void unpack(std::uint64_t bits, std::uint8_t* bytes) const noexcept {
    for (std::int32_t left = now_.size.width; left > 0; left -= 8) {
      std::uint64_t spread = (bits & 0xFF) * UINT64_C(0x0101010101010101);
      spread &= std::endian::native == std::endian::little ? UINT64_C(0x8040201008040201)
                                                           : UINT64_C(0x0102040810204080);
      spread = ((spread + UINT64_C(0x7F7F7F7F7F7F7F7F)) >> 7) & UINT64_C(0x0101010101010101);
      std::memcpy(bytes, &spread, static_cast<std::size_t>(std::min(left, 8)));
      bytes += 8;
      bits >>= 8;
    }
  }

  const State& state_;
  Perceived now_;
  std::array<std::int32_t, kMoves> legal_{};
  std::int32_t legal_count_ = 0;
  std::array<Outlook, kMoves> outlooks_{};
};

}  // namespace superdex::tron
