// The random generator of a game: small enough to be one of its fields.
#pragma once

#include <cstdint>

#include "superdex_game.h"

namespace superdex {

// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014):
// a counter that advances by the golden ratio's 64 bits, and a mix of it.
struct SplitMix64 {
  std::uint64_t counter = 0;

  std::uint64_t next() noexcept {
    const std::uint64_t value = sdg_mix(counter);
    counter += UINT64_C(0x9E3779B97F4A7C15);
    return value;
  }

  // A number in 0 … bound − 1, by the upper half of a 32 × 32 bit product (Lemire, "Fast random
  // integer generation in an interval", 2019, without the rejection: the bias is below bound / 2^32).
  std::int32_t below(std::int32_t bound) noexcept {
    const std::uint64_t draw = next() >> 32;
    return static_cast<std::int32_t>((draw * static_cast<std::uint64_t>(bound)) >> 32);
  }
};

}  // namespace superdex
