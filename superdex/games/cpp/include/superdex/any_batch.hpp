// A batch of any game, as the C functions see it.
#pragma once

#include <cstdint>

#include "superdex_game.h"

// What the C functions need of a batch, whatever its game. Nothing here throws.
struct sdg_batch {
  sdg_batch() = default;
  sdg_batch(const sdg_batch&) = delete;
  sdg_batch& operator=(const sdg_batch&) = delete;
  virtual ~sdg_batch() = default;

  virtual std::int32_t reset(const std::int32_t* rows, std::int32_t count, const std::uint64_t* seeds,
                             const std::uint8_t* seeded, const sdg_outputs* outputs) noexcept = 0;
  virtual std::int32_t step(const std::int32_t* rows, std::int32_t count, const std::int32_t* actions,
                            const std::uint64_t* state_ids, std::int32_t flags,
                            const sdg_outputs* outputs) noexcept = 0;
  virtual std::int32_t observe(const std::int32_t* rows, std::int32_t count,
                               const sdg_outputs& outputs) noexcept = 0;
  [[nodiscard]] virtual std::int64_t state_size() const noexcept = 0;
  virtual std::int32_t capture(const std::int32_t* rows, std::int32_t count,
                               std::uint8_t* states) noexcept = 0;
  virtual std::int32_t restore(const std::int32_t* rows, std::int32_t count,
                               const std::uint8_t* states) noexcept = 0;
  virtual std::int32_t bot_moves(std::int32_t bot, std::int32_t depth, std::int32_t nodes,
                                 const std::int32_t* rows, std::int32_t count,
                                 const std::uint8_t* wanted, std::int32_t* moves) noexcept = 0;
};
