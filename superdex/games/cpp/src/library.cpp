// The games that superdex ships in one library.

#include "superdex/library.hpp"
#include "tron_game.hpp"

namespace superdex {

std::span<const GameEntry> library_games() noexcept {
  static constexpr GameEntry games[] = {entry<tron::Tron>()};
  return games;
}

}  // namespace superdex
