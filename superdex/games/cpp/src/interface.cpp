// The C functions of superdex_game.h over a library's games: checks pointers and catches exceptions.

#include <new>
#include <stdexcept>
#include <system_error>

#include "superdex/library.hpp"

namespace {

using superdex::GameEntry;

const GameEntry* find(std::int32_t game) noexcept {
  const auto games = superdex::library_games();
  return game >= 0 && static_cast<std::size_t>(game) < games.size() ? &games[static_cast<std::size_t>(game)]
                                                                    : nullptr;
}

// A game without options needs no values.
bool given(const GameEntry& entry, const std::int64_t* options) noexcept {
  return options != nullptr || entry.options().empty();
}

bool in_range(const GameEntry& entry, const std::int64_t* options) noexcept {
  const auto known = entry.options();
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (options[i] < known[i].least || options[i] > known[i].greatest) return false;
  }
  return true;
}

bool usable(const sdg_outputs* outputs) noexcept {
  return outputs == nullptr || outputs->size == sizeof(sdg_outputs);
}

// No exception crosses the interface.
template <class Body>
std::int32_t guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return SDG_NO_MEMORY;
  } catch (const std::length_error&) {
    return SDG_NO_MEMORY;
  } catch (const std::system_error&) {
    return SDG_NO_MEMORY;  // threads could not be started
  } catch (...) {
    return SDG_INTERNAL;
  }
}

}  // namespace

extern "C" {

std::uint64_t sdg_interface_stamp(void) noexcept { return SDG_STAMP; }

const char* sdg_game_name(std::int32_t game) noexcept {
  const GameEntry* entry = find(game);
  return entry ? entry->name : nullptr;
}

const char* sdg_name(std::int32_t game, std::int32_t kind, std::int32_t index) noexcept {
  const GameEntry* entry = find(game);
  if (entry == nullptr || index < 0) return nullptr;
  const auto i = static_cast<std::size_t>(index);
  if (kind == SDG_OPTION) return i < entry->options().size() ? entry->options()[i].name : nullptr;
  const auto names = entry->names(kind);
  return i < names.size() ? names[i] : nullptr;
}

std::int32_t sdg_option_range(std::int32_t game, std::int32_t index, std::int64_t range[3]) noexcept {
  const GameEntry* entry = find(game);
  if (entry == nullptr || range == nullptr || index < 0 ||
      static_cast<std::size_t>(index) >= entry->options().size()) {
    return SDG_BAD_ARGUMENT;
  }
  const superdex::Option& option = entry->options()[static_cast<std::size_t>(index)];
  range[0] = option.usual;
  range[1] = option.least;
  range[2] = option.greatest;
  return SDG_OK;
}

std::int32_t sdg_describe(std::int32_t game, const std::int64_t* options,
                          sdg_description* description) noexcept {
  const GameEntry* entry = find(game);
  if (entry == nullptr || !given(*entry, options) || description == nullptr ||
      description->size != sizeof(sdg_description)) {
    return SDG_BAD_ARGUMENT;
  }
  if (!in_range(*entry, options)) return SDG_BAD_OPTION;
  return guarded([&] {
    *description = entry->describe(options);
    return SDG_OK;
  });
}

std::int32_t sdg_create(std::int32_t game, const std::int64_t* options, const sdg_settings* settings,
                        const std::uint64_t* seeds, sdg_batch** batch) noexcept {
  const GameEntry* entry = find(game);
  if (entry == nullptr || !given(*entry, options) || settings == nullptr || seeds == nullptr ||
      batch == nullptr || settings->size != sizeof(sdg_settings) || settings->num_games < 1 ||
      settings->num_threads < 1 || settings->num_threads > SDG_MOST_THREADS || settings->max_actions < 1 ||
      settings->event_history < 0 || settings->max_episode_steps < 0) {
    return SDG_BAD_ARGUMENT;
  }
  if (!in_range(*entry, options)) return SDG_BAD_OPTION;
  return guarded([&]() -> std::int32_t {
    if (settings->event_history > 0 && entry->describe(options).num_event_features == 0) {
      return SDG_UNSUPPORTED;
    }
    *batch = entry->create(options, *settings, seeds).release();
    return SDG_OK;
  });
}

void sdg_free(sdg_batch* batch) noexcept { delete batch; }

std::int32_t sdg_reset(sdg_batch* batch, const std::int32_t* rows, std::int32_t count,
                       const std::uint64_t* seeds, const std::uint8_t* seeded,
                       const sdg_outputs* outputs) noexcept {
  if (batch == nullptr || !usable(outputs)) return SDG_BAD_ARGUMENT;
  return batch->reset(rows, count, seeds, seeded, outputs);
}

std::int32_t sdg_step(sdg_batch* batch, const std::int32_t* rows, std::int32_t count,
                      const std::int32_t* actions, const std::uint64_t* state_ids, std::int32_t flags,
                      const sdg_outputs* outputs) noexcept {
  const bool known = (flags & ~(SDG_AUTO_RESET | SDG_KEEP_ILLEGAL)) == 0;
  if (batch == nullptr || (actions == nullptr && count != 0) || !known || !usable(outputs)) {
    return SDG_BAD_ARGUMENT;
  }
  return batch->step(rows, count, actions, state_ids, flags, outputs);
}

std::int32_t sdg_observe(sdg_batch* batch, const std::int32_t* rows, std::int32_t count,
                         const sdg_outputs* outputs) noexcept {
  if (batch == nullptr || outputs == nullptr || !usable(outputs)) return SDG_BAD_ARGUMENT;
  return batch->observe(rows, count, *outputs);
}

std::int64_t sdg_state_size(const sdg_batch* batch) noexcept {
  return batch == nullptr ? 0 : batch->state_size();
}

std::int32_t sdg_capture(sdg_batch* batch, const std::int32_t* rows, std::int32_t count,
                         std::uint8_t* states) noexcept {
  if (batch == nullptr || (states == nullptr && count != 0)) return SDG_BAD_ARGUMENT;
  return batch->capture(rows, count, states);
}

std::int32_t sdg_restore(sdg_batch* batch, const std::int32_t* rows, std::int32_t count,
                         const std::uint8_t* states) noexcept {
  if (batch == nullptr || (states == nullptr && count != 0)) return SDG_BAD_ARGUMENT;
  return batch->restore(rows, count, states);
}

std::int32_t sdg_bot_moves(sdg_batch* batch, std::int32_t bot, std::int32_t depth, std::int32_t nodes,
                           const std::int32_t* rows, std::int32_t count, const std::uint8_t* wanted,
                           std::int32_t* moves) noexcept {
  if (batch == nullptr || (moves == nullptr && count != 0) || depth < 0 || nodes < 0) {
    return SDG_BAD_ARGUMENT;
  }
  return batch->bot_moves(bot, depth, nodes, rows, count, wanted, moves);
}

}  // extern "C"
