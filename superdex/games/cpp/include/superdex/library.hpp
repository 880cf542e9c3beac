// The games that a library offers: what src/interface.cpp turns into the C functions.
#pragma once

#include <memory>
#include <span>

#include "superdex/batch.hpp"

namespace superdex {

struct GameEntry {
  const char* name;
  std::span<const char* const> (*names)(std::int32_t kind) noexcept;
  std::span<const Option> (*options)() noexcept;
  sdg_description (*describe)(const std::int64_t* options);
  std::unique_ptr<sdg_batch> (*create)(const std::int64_t* options, const sdg_settings& settings,
                                       const std::uint64_t* seeds);
};

template <Game G>
constexpr GameEntry entry() noexcept {
  return {G::kName, &G::names, &G::options,
          [](const std::int64_t* options) { return described<G>(typename G::Rules(options)); },
          [](const std::int64_t* options, const sdg_settings& settings,
             const std::uint64_t* seeds) -> std::unique_ptr<sdg_batch> {
            return std::make_unique<Batch<G>>(options, settings, seeds);
          }};
}

// Defined once by each library.
std::span<const GameEntry> library_games() noexcept;

}  // namespace superdex
