// One game of a batch, and what it looks like as bytes that may come back damaged.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "superdex_game.h"
#include "superdex/game.hpp"

namespace superdex {

// What the last call gave a row, so that it can be written again.
template <Game G>
struct Last {
  std::array<float, G::kSeats> seat_reward{};
  float reward = 0;
  std::int32_t acting_seat = -1;
  std::uint8_t terminated = 0;
  std::uint8_t truncated = 0;
  std::uint8_t action_valid = 0;
  std::uint8_t unused = 0;
};

// A row: its game, its place in the episodes, and its last results.
template <Game G>
struct Slot {
  typename G::State game{};
  std::uint64_t base = 0;     // see sdg_episode_seed
  std::uint64_t episode = 0;  // since the seeded reset
  Last<G> last{};
  std::int32_t steps = 0;  // accepted in this episode
  std::int32_t ended = 0;  // 1: terminated or truncated, and not begun anew
  std::int32_t unused[1 + G::kSeats % 2] = {};
};

// The first bytes of a captured row; its events follow, and a checksum of all that.
template <Game G>
struct Captured {
  std::uint64_t fingerprint;  // of the batch's game, options and event history
  Slot<G> slot;

  // Captured bytes are those of the structs: none may be indeterminate.
  static_assert(sizeof(Last<G>) == 4 * (G::kSeats + 3));
  static_assert(sizeof(Slot<G>) ==
                sizeof(typename G::State) + 16 + sizeof(Last<G>) + 8 + 4 * (1 + G::kSeats % 2));
  static_assert(sizeof(typename G::State) % 8 == 0, "fill a game's State up to a multiple of 8 bytes");
};

// Whether a slot that came as bytes is one that playing leads to, as far as a batch relies on it.
template <Game G>
bool sound(const typename G::Rules& rules, const Slot<G>& slot) noexcept {
  const Last<G>& last = slot.last;
  if (slot.ended < 0 || slot.ended > 1 || slot.steps < 0 || slot.steps >= (1 << 30)) return false;
  if (last.terminated > 1 || last.truncated > 1 || last.action_valid > 1) return false;
  if (last.acting_seat < -1 || last.acting_seat >= G::kSeats) return false;
  if (!G::sound(rules, slot.game)) return false;
  if (G::seat(slot.game) < 0 || G::seat(slot.game) >= G::kSeats) return false;
  // A game that is over rests, and has terminated; another rests only where it was truncated.
  if (slot.ended == 0) return !G::over(slot.game);
  return G::over(slot.game) ? last.terminated > last.truncated : last.truncated > last.terminated;
}

// FNV-1a, over eight bytes at a time; `size` is a multiple of them.
inline std::uint64_t checksum(const std::uint8_t* bytes, std::size_t size) noexcept {
  std::uint64_t sum = UINT64_C(0xcbf29ce484222325);
  for (std::size_t i = 0; i < size; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i, 8);
    sum = (sum ^ word) * UINT64_C(0x100000001b3);
    sum ^= sum >> 32;
  }
  return sum;
}

}  // namespace superdex
