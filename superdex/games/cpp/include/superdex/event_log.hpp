// What the seats of each game have seen happen: the last K events, in memory taken once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "superdex_game.h"

namespace superdex {

// The sizes of an event's record: features, then sub-records, then which of those are there.
struct EventShape {
  std::int32_t seats = 0;
  std::int32_t history = 0;
  std::int32_t features = 0;
  std::int32_t affected = 0;
  std::int32_t affected_features = 0;

  [[nodiscard]] std::size_t affected_words() const noexcept {
    return static_cast<std::size_t>(affected) * static_cast<std::size_t>(affected_features);
  }
  [[nodiscard]] std::size_t words() const noexcept {
    return static_cast<std::size_t>(features) + affected_words() + static_cast<std::size_t>(affected);
  }
};

// All events of a batch: per game and seat a ring of records. A seat's events are numbered from 1 in
// each episode; event s lies in place (s − 1) mod K.
class EventLog {
 public:
  EventLog(EventShape shape, std::int32_t num_games)
      : shape_(shape),
        words_(rings(num_games) * history() * shape.words()),
        actions_(rings(num_games) * history()),
        seen_(rings(num_games)) {}

  [[nodiscard]] bool on() const noexcept { return shape_.history > 0; }

  void clear(std::int32_t game) noexcept {
    for (std::int32_t seat = 0; seat < shape_.seats; ++seat) seen_[ring(game, seat)] = 0;
  }

  // Append an event as one seat saw it; `affected` holds whole sub-records, or fewer than there may be.
  void add(std::int32_t game, std::int32_t seat, std::uint64_t action,
           std::span<const std::int32_t> features, std::span<const std::int32_t> affected) noexcept {
    const std::size_t r = ring(game, seat);
    const std::size_t place = r * history() + static_cast<std::size_t>(seen_[r]++ % history());
    std::int32_t* record = &words_[place * shape_.words()];
    std::fill_n(record, shape_.words(), 0);
    std::copy(features.begin(), features.end(), record);
    record += shape_.features;
    std::copy(affected.begin(), affected.end(), record);
    record += shape_.affected_words();
    const std::size_t present =
        affected.empty() ? 0 : affected.size() / static_cast<std::size_t>(shape_.affected_features);
    std::fill_n(record, present, 1);
    actions_[place] = action;
  }

  // Write a seat's window as entry i of the outputs.
  void write(std::int32_t game, std::int32_t seat, std::size_t i, const sdg_outputs& out) const noexcept {
    const std::size_t r = ring(game, seat);
    const std::size_t window = history();
    const std::size_t there = present(r);
    const std::size_t f = static_cast<std::size_t>(shape_.features);
    const std::size_t s = static_cast<std::size_t>(shape_.affected);
    for (std::size_t k = 0; k < window; ++k) {
      const bool event = k >= window - there;
      const std::uint64_t sequence = event ? seen_[r] - (window - 1 - k) : 0;
      const std::size_t place = event ? r * window + static_cast<std::size_t>((sequence - 1) % window) : 0;
      const std::int32_t* record = event ? &words_[place * shape_.words()] : nullptr;
      const std::size_t entry = i * window + k;
      if (out.event_features) put(out.event_features + entry * f, record, f);
      if (out.event_sequence) out.event_sequence[entry] = sequence;
      if (out.event_action_sequence) out.event_action_sequence[entry] = event ? actions_[place] : 0;
      if (out.event_mask) out.event_mask[entry] = event;
      if (out.event_affected) {
        put(out.event_affected + entry * shape_.affected_words(), record ? record + f : nullptr,
            shape_.affected_words());
      }
      if (out.event_affected_mask) {
        for (std::size_t a = 0; a < s; ++a) {
          out.event_affected_mask[entry * s + a] =
              record != nullptr && record[f + shape_.affected_words() + a] != 0;
        }
      }
    }
  }

  // Bytes of one game's events: the same for games whose seats have seen the same.
  [[nodiscard]] std::size_t captured_size() const noexcept {
    return static_cast<std::size_t>(shape_.seats) * (8 + history() * (8 + 4 * shape_.words()));
  }
  void capture(std::int32_t game, std::uint8_t* bytes) const noexcept {
    for (std::int32_t seat = 0; seat < shape_.seats; ++seat) {
      const std::size_t r = ring(game, seat);
      std::memcpy(bytes, &seen_[r], 8);
      bytes += 8;
      for (std::size_t place = 0; place < history(); ++place) {
        const bool there = place < present(r);
        bytes = take(bytes, there ? &actions_[r * history() + place] : nullptr, 8);
        bytes = take(bytes, there ? &words_[(r * history() + place) * shape_.words()] : nullptr,
                     4 * shape_.words());
      }
    }
  }
  void restore(std::int32_t game, const std::uint8_t* bytes) noexcept {
    for (std::int32_t seat = 0; seat < shape_.seats; ++seat) {
      const std::size_t r = ring(game, seat);
      std::memcpy(&seen_[r], bytes, 8);
      bytes += 8;
      for (std::size_t place = 0; place < history(); ++place) {
        std::memcpy(&actions_[r * history() + place], bytes, 8);
        std::memcpy(&words_[(r * history() + place) * shape_.words()], bytes + 8, 4 * shape_.words());
        bytes += 8 + 4 * shape_.words();
      }
    }
  }

 private:
  static void put(std::int32_t* to, const std::int32_t* from, std::size_t count) noexcept {
    if (from != nullptr) {
      std::copy_n(from, count, to);
    } else {
      std::fill_n(to, count, 0);
    }
  }
  static std::uint8_t* take(std::uint8_t* to, const void* from, std::size_t size) noexcept {
    if (from != nullptr) {
      std::memcpy(to, from, size);
    } else {
      std::memset(to, 0, size);
    }
    return to + size;
  }
  [[nodiscard]] std::size_t history() const noexcept { return static_cast<std::size_t>(shape_.history); }
  [[nodiscard]] std::size_t present(std::size_t r) const noexcept {
    return static_cast<std::size_t>(std::min<std::uint64_t>(seen_[r], history()));
  }
  [[nodiscard]] std::size_t rings(std::int32_t num_games) const noexcept {
    return static_cast<std::size_t>(num_games) * static_cast<std::size_t>(shape_.seats);
  }
  [[nodiscard]] std::size_t ring(std::int32_t game, std::int32_t seat) const noexcept {
    return static_cast<std::size_t>(game) * static_cast<std::size_t>(shape_.seats) +
           static_cast<std::size_t>(seat);
  }

  EventShape shape_;
  std::vector<std::int32_t> words_;
  std::vector<std::uint64_t> actions_;
  std::vector<std::uint64_t> seen_;
};

// Where a game puts the events of one action.
class EventSink {
 public:
  EventSink(EventLog& log, std::int32_t game, std::uint64_t action) noexcept
      : log_(log), game_(game), action_(action) {}

  // Whether anybody looks: a game may skip the work where nobody does.
  [[nodiscard]] bool on() const noexcept { return log_.on(); }

  void add(std::int32_t seat, std::span<const std::int32_t> features,
           std::span<const std::int32_t> affected) noexcept {
    if (on()) log_.add(game_, seat, action_, features, affected);
  }

 private:
  EventLog& log_;
  std::int32_t game_;
  std::uint64_t action_;
};

}  // namespace superdex
