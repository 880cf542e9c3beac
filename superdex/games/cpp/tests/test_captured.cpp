// Captured games that come back with other bytes: refused, or played to their end without harm.

#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "check.hpp"
#include "superdex/captured.hpp"
#include "superdex/random.hpp"
#include "superdex_game.h"
#include "tron_batch.hpp"

namespace {

using namespace superdex;
using namespace superdex::testing;

constexpr std::int32_t kGames = 4;

// Captured states, aligned as they have to be.
struct States {
  explicit States(const Tron& tron)
      : size(static_cast<std::size_t>(sdg_state_size(tron.batch))), words(kGames * size / 8) {}
  std::uint8_t* bytes() { return reinterpret_cast<std::uint8_t*>(words.data()); }
  std::uint8_t* game(std::size_t i) { return bytes() + i * size; }
  // Make the checksum right, whatever the bytes.
  void seal(std::size_t i) {
    const std::uint64_t sum = checksum(game(i), size - 8);
    std::memcpy(game(i) + size - 8, &sum, 8);
  }
  std::size_t size;
  std::vector<std::uint64_t> words;
};

// Play all games on with every kind of call until each has ended.
void play_on(Tron& tron, Arrays& arrays, SplitMix64& random) {
  std::vector<std::int32_t> actions(kGames), moves(kGames);
  for (int step = 0; step < 90; ++step) {
    CHECK(sdg_observe(tron.batch, nullptr, kGames, &arrays.out) == SDG_OK);
    CHECK(sdg_bot_moves(tron.batch, step % 4, 3, 20, nullptr, kGames, nullptr, moves.data()) == SDG_OK);
    choose(arrays, random, actions);
    CHECK(sdg_step(tron.batch, nullptr, kGames, actions.data(), nullptr, 0, &arrays.out) == SDG_OK);
  }
}

void damaged_bytes_are_refused(Tron& tron) {
  Arrays arrays(tron.about, kGames);
  States kept(tron), bad(tron), now(tron);
  CHECK(sdg_capture(tron.batch, nullptr, kGames, kept.bytes()) == SDG_OK);
  bad.words = kept.words;
  for (std::size_t i = 0; i < kept.size; ++i) {
    for (const int change : {1, 128, 255}) {
      bad.game(1)[i] = static_cast<std::uint8_t>(kept.game(1)[i] ^ change);
      CHECK(sdg_restore(tron.batch, nullptr, kGames, bad.bytes()) == SDG_BAD_STATE);
    }
    bad.game(1)[i] = kept.game(1)[i];
  }
  CHECK(sdg_capture(tron.batch, nullptr, kGames, now.bytes()) == SDG_OK);
  CHECK(now.words == kept.words);
  CHECK(sdg_restore(tron.batch, nullptr, kGames, kept.bytes()) == SDG_OK);
}

// Bytes with a right checksum: whoever made them, games stay within their boards and arrays.
void sealed_bytes_do_no_harm(Tron& tron, SplitMix64& random) {
  Arrays arrays(tron.about, kGames);
  States kept(tron), bad(tron);
  const std::int32_t extremes[] = {0, 1, 2, -1, 7, 79, 80, std::numeric_limits<std::int32_t>::max(),
                                   std::numeric_limits<std::int32_t>::min()};
  int taken = 0, refused = 0;
  CHECK(sdg_reset(tron.batch, nullptr, kGames, nullptr, nullptr, &arrays.out) == SDG_OK);
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<std::int32_t> actions(kGames);
    choose(arrays, random, actions);
    CHECK(sdg_step(tron.batch, nullptr, kGames, actions.data(), nullptr, trial % 4, &arrays.out) == SDG_OK);
    CHECK(sdg_capture(tron.batch, nullptr, kGames, kept.bytes()) == SDG_OK);
    // Past the fingerprint, which is no secret either but has to be right.
    for (std::size_t at = 8; at + 8 < kept.size; at += 4) {
      bad.words = kept.words;
      const auto changed = static_cast<std::size_t>(random.below(kGames));
      const std::int32_t value = random.below(2) == 0
                                     ? static_cast<std::int32_t>(random.next())
                                     : extremes[static_cast<std::size_t>(random.below(9))];
      std::memcpy(bad.game(changed) + at, &value, 4);
      bad.seal(changed);
      const std::int32_t status = sdg_restore(tron.batch, nullptr, kGames, bad.bytes());
      CHECK(status == SDG_OK || status == SDG_BAD_STATE);
      ++(status == SDG_OK ? taken : refused);
      CHECK(sdg_observe(tron.batch, nullptr, kGames, &arrays.out) == SDG_OK);
      for (std::size_t i = 0; i < kGames; ++i) {
        CHECK(arrays.counts[i] > 0 || arrays.terminated[i] + arrays.truncated[i] == 1);
      }
      if (status == SDG_OK && random.below(16) == 0) play_on(tron, arrays, random);
    }
    CHECK(sdg_restore(tron.batch, nullptr, kGames, kept.bytes()) == SDG_OK);
    CHECK(sdg_observe(tron.batch, nullptr, kGames, &arrays.out) == SDG_OK);
  }
  CHECK(taken > 100 && refused > 100);
}

}  // namespace

int main() {
  SplitMix64 random{9};
  for (const auto& [max_plies, opening_plies] : {std::pair{0, 0}, {12, 0}, {9, 5}}) {
    Tron tron({10, 8, 2, max_plies, opening_plies}, kGames, 1);
    damaged_bytes_are_refused(tron);
    sealed_bytes_do_no_harm(tron, random);
  }
}
