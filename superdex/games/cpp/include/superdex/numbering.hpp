// The numbers of a batch's positions and episodes: what they number never has another's.
#pragma once

#include <cstdint>
#include <vector>

#include "superdex_game.h"

namespace superdex {

// The count-th position of a row has the number count · games + row, and so has its count-th episode.
// Counts only ever grow: neither resets nor restored states take them back. One thread at a time for
// one row; several at once for several.
class Numbering {
 public:
  // Callers tell batches apart by the bits above: see sdg_settings::first_state_id.
  static constexpr std::uint64_t kMost = UINT64_C(1) << 44;

  Numbering(const sdg_settings& settings, std::uint64_t most)
      : games_(static_cast<std::uint64_t>(settings.num_games)),
        first_state_id_(settings.first_state_id),
        first_episode_id_(settings.first_episode_id),
        most_(most),
        counts_(games_) {}

  void add_position(std::int32_t row) noexcept { ++at(row).positions; }
  // An episode begins with a position of its own.
  void add_episode(std::int32_t row) noexcept {
    ++at(row).positions;
    ++at(row).episodes;
  }

  [[nodiscard]] std::uint64_t state_id(std::int32_t row) const noexcept {
    return first_state_id_ + numbered(at(row).positions, row);
  }
  [[nodiscard]] std::uint64_t episode_id(std::int32_t row) const noexcept {
    return first_episode_id_ + numbered(at(row).episodes, row);
  }

  // Return SDG_OK if a call has the numbers it may need, else SDG_EXHAUSTED. A step takes up to two:
  // its own and that of the next episode.
  [[nodiscard]] std::int32_t room(std::int32_t row) const noexcept {
    return numbered(at(row).positions + 2, row) < most_ ? SDG_OK : SDG_EXHAUSTED;
  }

 private:
  struct Counts {
    std::uint64_t positions = 0;
    std::uint64_t episodes = 0;  // never more than positions
  };

  Counts& at(std::int32_t row) noexcept { return counts_[static_cast<std::size_t>(row)]; }
  [[nodiscard]] const Counts& at(std::int32_t row) const noexcept {
    return counts_[static_cast<std::size_t>(row)];
  }
  [[nodiscard]] std::uint64_t numbered(std::uint64_t count, std::int32_t row) const noexcept {
    return count * games_ + static_cast<std::uint64_t>(row);
  }

  std::uint64_t games_;
  std::uint64_t first_state_id_;
  std::uint64_t first_episode_id_;
  std::uint64_t most_;
  std::vector<Counts> counts_;
};

}  // namespace superdex
