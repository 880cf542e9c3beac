// Floods and territories by bits equal those by queues of cells, on random boards of many sizes.

#include <vector>

#include "check.hpp"
#include "superdex/random.hpp"
#include "tron_board.hpp"

namespace {

using namespace superdex;
using namespace superdex::tron;

struct Position {
  Size size;
  Cells free;
  std::int32_t first;
  std::int32_t second;
};

Position random_position(SplitMix64& random) {
  const Size size{4 + random.below(61), 4 + random.below(61)};
  Position position{size, Cells(size), random.below(size.cells()), random.below(size.cells())};
  const std::int32_t density = 30 + random.below(70);
  for (std::int32_t cell = 0; cell < size.cells(); ++cell) {
    if (random.below(100) < density) position.free.add(size, cell);
  }
  position.free.remove(size, position.second);
  if (random.below(2) == 0) position.free.remove(size, position.first);
  if (random.below(8) == 0) position.second = -1;
  return position;
}

void flood_equals_a_queue(const Position& position) {
  const Size size = position.size;
  std::vector<char> found(static_cast<std::size_t>(size.cells()), 0);
  std::vector<std::int32_t> queue{position.first};
  found[static_cast<std::size_t>(position.first)] = 1;
  for (std::size_t next = 0; next < queue.size(); ++next) {
    for (std::int32_t direction = 0; direction < 4; ++direction) {
      const std::int32_t cell = size.beside(queue[next], direction);
      if (cell < 0 || !position.free.has(size, cell) || found[static_cast<std::size_t>(cell)]) continue;
      found[static_cast<std::size_t>(cell)] = 1;
      queue.push_back(cell);
    }
  }
  const Cells reached = flood(size, position.free, position.first);
  for (std::int32_t cell = 0; cell < size.cells(); ++cell) {
    const bool expected = found[static_cast<std::size_t>(cell)] && position.free.has(size, cell);
    CHECK(reached.has(size, cell) == expected);
  }
}

void territories_equal_queues(const Position& position) {
  const Size size = position.size;
  std::vector<char> open(static_cast<std::size_t>(size.cells()), 0);
  for (std::int32_t cell = 0; cell < size.cells(); ++cell) {
    open[static_cast<std::size_t>(cell)] = position.free.has(size, cell);
  }
  std::vector<std::int32_t> fronts[2];
  std::vector<char> taken[2] = {std::vector<char>(open.size(), 0), std::vector<char>(open.size(), 0)};
  fronts[0].push_back(position.first);
  if (position.second >= 0) fronts[1].push_back(position.second);
  while (!fronts[0].empty() || !fronts[1].empty()) {
    for (int side = 0; side < 2; ++side) {
      std::vector<std::int32_t> next;
      for (const std::int32_t from : fronts[side]) {
        for (std::int32_t direction = 0; direction < 4; ++direction) {
          const std::int32_t cell = size.beside(from, direction);
          if (cell < 0 || !open[static_cast<std::size_t>(cell)]) continue;
          open[static_cast<std::size_t>(cell)] = 0;
          taken[side][static_cast<std::size_t>(cell)] = 1;
          next.push_back(cell);
        }
      }
      fronts[side] = next;
    }
  }
  const Territory territory = divide(size, position.free, position.first, position.second);
  for (std::int32_t cell = 0; cell < size.cells(); ++cell) {
    CHECK(territory.first.has(size, cell) == (taken[0][static_cast<std::size_t>(cell)] != 0));
    CHECK(territory.second.has(size, cell) == (taken[1][static_cast<std::size_t>(cell)] != 0));
  }
}

}  // namespace

int main() {
  SplitMix64 random{2026};
  for (int i = 0; i < 1500; ++i) {
    const Position position = random_position(random);
    flood_equals_a_queue(position);
    territories_equal_queues(position);
  }
}
