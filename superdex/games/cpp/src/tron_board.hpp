// Sets of cells as bits, one word per row of the board, and what can be reached on them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace superdex::tron {

inline constexpr std::int32_t kMostRows = 64;

struct Size {
  std::int32_t width;
  std::int32_t height;

  [[nodiscard]] std::uint64_t full_row() const noexcept { return ~std::uint64_t{0} >> (64 - width); }
  [[nodiscard]] std::int32_t cells() const noexcept { return width * height; }
  [[nodiscard]] std::int32_t x(std::int32_t cell) const noexcept { return cell % width; }
  [[nodiscard]] std::int32_t y(std::int32_t cell) const noexcept { return cell / width; }

  // The cell beside another, 0 up, 1 right, 2 down, 3 left; −1 outside the board.
  [[nodiscard]] std::int32_t beside(std::int32_t cell, std::int32_t direction) const noexcept {
    switch (direction) {
      case 0: return cell >= width ? cell - width : -1;
      case 1: return x(cell) + 1 < width ? cell + 1 : -1;
      case 2: return cell + width < cells() ? cell + width : -1;
      default: return x(cell) > 0 ? cell - 1 : -1;
    }
  }
};

// Cells of a board; a row of zeros lies above and below. Only the rows of the board are ever set up.
class Cells {
 public:
  explicit Cells(Size size, std::uint64_t value = 0) noexcept {
    rows_[0] = 0;
    rows_[static_cast<std::size_t>(size.height) + 1] = 0;
    std::fill_n(rows_.begin() + 1, size.height, value);
  }

  [[nodiscard]] std::uint64_t& row(std::int32_t y) noexcept { return rows_[static_cast<std::size_t>(y + 1)]; }
  [[nodiscard]] std::uint64_t row(std::int32_t y) const noexcept { return rows_[static_cast<std::size_t>(y + 1)]; }
  [[nodiscard]] bool has(Size size, std::int32_t cell) const noexcept {
    return ((row(size.y(cell)) >> size.x(cell)) & 1) != 0;
  }
  void add(Size size, std::int32_t cell) noexcept { row(size.y(cell)) |= std::uint64_t{1} << size.x(cell); }
  void remove(Size size, std::int32_t cell) noexcept {
    row(size.y(cell)) &= ~(std::uint64_t{1} << size.x(cell));
  }
  [[nodiscard]] std::int32_t count(Size size) const noexcept {
    std::int32_t total = 0;
    for (std::int32_t y = 0; y < size.height; ++y) total += std::popcount(row(y));
    return total;
  }

 private:
  std::array<std::uint64_t, kMostRows + 2> rows_;
};

// Spread the seeds over the runs of free cells that they lie in, within one row.
inline std::uint64_t spread(std::uint64_t seeds, std::uint64_t free) noexcept {
  // Towards higher bits the carry of an addition runs through a whole run of ones.
  seeds |= free & ~(free + seeds);
  // Towards lower bits: a prefix scan in six steps (Kogge and Stone, 1973).
  std::uint64_t through = free;
  for (int step = 1; step < 64; step *= 2) {
    seeds |= through & (seeds >> step);
    through &= through >> step;
  }
  return seeds;
}

// Return the free cells connected with `cell`, itself included where it is free.
inline Cells flood(Size size, const Cells& free, std::int32_t cell) noexcept {
  Cells reached(size);
  const std::int32_t start = size.y(cell);
  const std::uint64_t seed = std::uint64_t{1} << size.x(cell);
  const auto visit = [&](std::int32_t y) {
    std::uint64_t seeds = reached.row(y - 1) | reached.row(y + 1);
    if (y == start) seeds |= (seed << 1) | (seed >> 1) | seed;
    if (y == start - 1 || y == start + 1) seeds |= seed;
    seeds = (seeds | reached.row(y)) & free.row(y);
    const std::uint64_t now = seeds != 0 ? spread(seeds, free.row(y)) : 0;
    const bool grew = now != reached.row(y);
    reached.row(y) = now;
    return grew;
  };
  // Sweep down and up until nothing grows: a sweep follows every path that does not turn back.
  for (bool grew = true; grew;) {
    grew = false;
    for (std::int32_t y = 0; y < size.height; ++y) grew |= visit(y);
    for (std::int32_t y = size.height - 1; y >= 0; --y) grew |= visit(y);
  }
  return reached;
}

// The free cells that each of two cycles enters first, if both spread out one step at a time in turn.
struct Territory {
  Cells first;
  Cells second;
};

// Divide the free cells; `to_move` takes the first step. A cell of −1 stands for a cycle not seen.
inline Territory divide(Size size, const Cells& free, std::int32_t to_move, std::int32_t other) noexcept {
  struct Front {
    Cells cells;  // reached by the last step
    Cells mine;
    std::int32_t low;
    std::int32_t high;  // rows that the next step may reach
    bool moving;
  };
  const auto begin = [&](std::int32_t cell) {
    Front front{Cells(size), Cells(size), 0, -1, cell >= 0};
    if (cell >= 0) {
      front.cells.add(size, cell);
      front.low = std::max(0, size.y(cell) - 1);
      front.high = std::min(size.height - 1, size.y(cell) + 1);
    }
    return front;
  };
  Cells open = free;
  Front fronts[2] = {begin(to_move), begin(other)};
  const auto step = [&](Front& front) {
    std::uint64_t any = 0;
    std::uint64_t above = front.cells.row(front.low - 1);  // as it was before this step
    for (std::int32_t y = front.low; y <= front.high; ++y) {
      const std::uint64_t here = front.cells.row(y);
      const std::uint64_t next =
          ((here << 1) | (here >> 1) | above | front.cells.row(y + 1)) & open.row(y);
      above = here;
      front.cells.row(y) = next;
      front.mine.row(y) |= next;
      open.row(y) &= ~next;
      any |= next;
    }
    front.low = std::max(0, front.low - 1);
    front.high = std::min(size.height - 1, front.high + 1);
    front.moving = any != 0;
  };
  while (fronts[0].moving || fronts[1].moving) {
    if (fronts[0].moving) step(fronts[0]);
    if (fronts[1].moving) step(fronts[1]);
  }
  return {fronts[0].mine, fronts[1].mine};
}

// Return how many more cells `to_move` enters first than the other.
inline std::int32_t margin(Size size, const Cells& free, std::int32_t to_move, std::int32_t other) noexcept {
  const Territory territory = divide(size, free, to_move, other);
  return territory.first.count(size) - territory.second.count(size);
}

}  // namespace superdex::tron
