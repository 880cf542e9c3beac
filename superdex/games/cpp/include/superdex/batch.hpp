// Many games of one kind behind the C interface: rows, episodes, numbers, threads; knows no game.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "superdex_game.h"
#include "superdex/any_batch.hpp"
#include "superdex/captured.hpp"
#include "superdex/event_log.hpp"
#include "superdex/fork_guard.hpp"
#include "superdex/game.hpp"
#include "superdex/numbering.hpp"
#include "superdex/row_claims.hpp"
#include "superdex/thread_pool.hpp"

namespace superdex {

template <Game G>
class Batch final : public sdg_batch {
 public:
  // Takes all memory and starts the threads; the arguments are checked already. Calls that would
  // take a number of `most_numbers` or more are refused.
  Batch(const std::int64_t* options, const sdg_settings& settings, const std::uint64_t* seeds,
        std::uint64_t most_numbers = Numbering::kMost)
      : rules_(options),
        settings_(settings),
        about_(described<G>(rules_)),
        fingerprint_(fingerprint(options)),
        events_({G::kSeats, settings.event_history, about_.num_event_features, about_.num_affected,
                 about_.num_affected_features},
                settings.num_games),
        slots_(static_cast<std::size_t>(settings.num_games)),
        numbering_(settings, most_numbers),
        pending_(slots_.size()),
        finals_(slots_.size()),
        legal_(slots_.size() * static_cast<std::size_t>(about_.most_legal_actions)),
        shared_(std::make_unique<Shared>(settings)) {
    shared_->pool.run(settings.num_games, G::kGrain, [&](std::int32_t row) noexcept {
      begin_seeded(row, seeds[row]);
    });
  }

  // In a forked child the threads are not there to be ended, nor whoever waited: both are left.
  ~Batch() override {
    if (guard_.forked()) static_cast<void>(shared_.release());
  }

  std::int32_t reset(const std::int32_t* rows, std::int32_t count, const std::uint64_t* seeds,
                     const std::uint8_t* seeded, const sdg_outputs* outputs) noexcept override {
    return for_rows(rows, count, grain(outputs), [&](std::int32_t i, std::int32_t row) noexcept {
      if (seeds != nullptr && (seeded == nullptr || seeded[i] != 0)) {
        begin_seeded(row, seeds[i]);
      } else {
        begin_next(row);
      }
      slot(row).last = {};
      pending(row).has_final = 0;
      if (outputs != nullptr) write(row, i, *outputs);
    }, [&](std::int32_t, std::int32_t row) noexcept { return numbering_.room(row); });
  }

  std::int32_t step(const std::int32_t* rows, std::int32_t count, const std::int32_t* actions,
                    const std::uint64_t* state_ids, std::int32_t flags,
                    const sdg_outputs* outputs) noexcept override {
    return for_rows(
        rows, count, grain(outputs),
        [&](std::int32_t i, std::int32_t row) noexcept { play(row, i, flags, outputs); },
        [&](std::int32_t i, std::int32_t row) noexcept -> std::int32_t {
          // Outputs may overwrite actions and ids, so both are read here.
          pending(row).action = actions[i];
          if (state_ids != nullptr && state_ids[i] != numbering_.state_id(row)) return SDG_STALE;
          return numbering_.room(row);
        });
  }

  std::int32_t observe(const std::int32_t* rows, std::int32_t count,
                       const sdg_outputs& outputs) noexcept override {
    return for_rows(rows, count, grain(&outputs),
                    [&](std::int32_t i, std::int32_t row) noexcept { write(row, i, outputs); });
  }

  [[nodiscard]] std::int64_t state_size() const noexcept override {
    return static_cast<std::int64_t>(sizeof(Captured<G>) + (events_.captured_size() + 7) / 8 * 8 + 8);
  }

  std::int32_t capture(const std::int32_t* rows, std::int32_t count,
                       std::uint8_t* states) noexcept override {
    const auto size = static_cast<std::size_t>(state_size());
    return for_rows(rows, count, G::kGrain, [&](std::int32_t i, std::int32_t row) noexcept {
      std::uint8_t* bytes = states + static_cast<std::size_t>(i) * size;
      const Captured<G> head{fingerprint_, slot(row)};
      std::memset(bytes + size - 16, 0, 8);  // events may not fill their last word
      std::memcpy(bytes, &head, sizeof head);
      events_.capture(row, bytes + sizeof head);
      const std::uint64_t sum = checksum(bytes, size - 8);
      std::memcpy(bytes + size - 8, &sum, 8);
    });
  }

  std::int32_t restore(const std::int32_t* rows, std::int32_t count,
                       const std::uint8_t* states) noexcept override {
    const auto size = static_cast<std::size_t>(state_size());
    const auto bytes = [&](std::int32_t i) { return states + static_cast<std::size_t>(i) * size; };
    return for_rows(
        rows, count, G::kGrain,
        [&](std::int32_t i, std::int32_t row) noexcept {
          Captured<G> head;
          std::memcpy(static_cast<void*>(&head), bytes(i), sizeof head);
          slot(row) = head.slot;
          events_.restore(row, bytes(i) + sizeof head);
          numbering_.add_episode(row);
          pending(row).has_final = 0;
        },
        [&](std::int32_t i, std::int32_t row) noexcept -> std::int32_t {
          std::uint64_t sum = 0;
          std::memcpy(&sum, bytes(i) + size - 8, 8);
          Captured<G> head;
          std::memcpy(static_cast<void*>(&head), bytes(i), sizeof head);
          const bool good = sum == checksum(bytes(i), size - 8) &&
                            head.fingerprint == fingerprint_ && sound<G>(rules_, head.slot);
          return good ? numbering_.room(row) : SDG_BAD_STATE;
        });
  }

  std::int32_t bot_moves(std::int32_t bot, std::int32_t depth, std::int32_t nodes,
                         const std::int32_t* rows, std::int32_t count, const std::uint8_t* wanted,
                         std::int32_t* moves) noexcept override {
    if (bot < 0 || bot >= static_cast<std::int32_t>(G::names(SDG_BOT).size())) {
      return G::names(SDG_BOT).empty() ? SDG_UNSUPPORTED : SDG_BAD_ARGUMENT;
    }
    return for_rows(rows, count, G::kSearchGrain, [&](std::int32_t i, std::int32_t row) noexcept {
      const bool asked = (wanted == nullptr || wanted[i] != 0) && slot(row).ended == 0;
      moves[i] = asked ? G::bot_move(rules_, slot(row).game, bot, depth, nodes) : -1;
    });
  }

 private:
  using State = typename G::State;
  using BoardEntry = typename G::BoardEntry;

  // What is not captured of a row.
  struct Pending {
    std::int32_t action = 0;     // of the step that runs
    std::int32_t has_final = 0;  // 1: the last step ended an episode, and finals_ has its end
  };
  struct Shared {
    explicit Shared(const sdg_settings& settings)
        : claims(settings.num_games), pool(settings.num_threads) {}
    RowClaims claims;
    ThreadPool pool;
  };

  [[nodiscard]] std::uint64_t fingerprint(const std::int64_t* options) const noexcept {
    std::uint64_t value = SDG_INTERFACE_VERSION;
    for (const char* c = G::kName; *c != 0; ++c) value = sdg_mix(value ^ static_cast<std::uint8_t>(*c));
    for (std::size_t i = 0; i < G::options().size(); ++i) {
      value = sdg_mix(value ^ static_cast<std::uint64_t>(options[i]));
    }
    value = sdg_mix(value ^ static_cast<std::uint64_t>(settings_.event_history));
    return sdg_mix(value ^ sizeof(Captured<G>));
  }

  // Whether a game has to be looked at for these outputs, which is most of the work.
  static bool features(const sdg_outputs& out) noexcept {
    return out.state || out.action_features || out.action_arg_mask;
  }
  // Games worth one turn of a thread.
  static std::int32_t grain(const sdg_outputs* out) noexcept {
    return out != nullptr && (features(*out) || out->board) ? G::kGrain : 32 * G::kGrain;
  }

  static std::size_t index(std::int32_t row) noexcept { return static_cast<std::size_t>(row); }
  Slot<G>& slot(std::int32_t row) noexcept { return slots_[index(row)]; }
  Pending& pending(std::int32_t row) noexcept { return pending_[index(row)]; }

  // Claim the rows, check each, and only then run the body for each.
  template <class Body, class Check>
  std::int32_t for_rows(const std::int32_t* rows, std::int32_t count, std::int32_t grain, Body&& body,
                        Check&& check) noexcept {
    if (guard_.forked()) return SDG_FORKED;
    const RowClaims::Claim claim(shared_->claims, rows, count);
    if (claim.status() != SDG_OK) return claim.status();
    for (std::int32_t i = 0; i < count; ++i) {
      const std::int32_t status = check(i, claim.row(i));
      if (status != SDG_OK) return status;
    }
    shared_->pool.run(count, grain,
                      [&](std::int32_t i) noexcept { body(i, claim.row(i)); });
    return SDG_OK;
  }
  template <class Body>
  std::int32_t for_rows(const std::int32_t* rows, std::int32_t count, std::int32_t grain,
                        Body&& body) noexcept {
    return for_rows(rows, count, grain, body, [](std::int32_t, std::int32_t) { return SDG_OK; });
  }

  void begin_seeded(std::int32_t row, std::uint64_t seed) noexcept {
    slot(row).base = seed - static_cast<std::uint64_t>(row);
    slot(row).episode = 0;
    begin(row, seed);
  }
  void begin_next(std::int32_t row) noexcept {
    Slot<G>& s = slot(row);
    ++s.episode;
    begin(row, sdg_episode_seed(s.base, static_cast<std::uint64_t>(row), s.episode));
  }
  void begin(std::int32_t row, std::uint64_t seed) noexcept {
    Slot<G>& s = slot(row);
    G::begin(rules_, s.game, seed);
    s.steps = 0;
    s.ended = 0;
    events_.clear(row);
    numbering_.add_episode(row);
  }

  std::int32_t* legal_of(std::int32_t row) noexcept {
    return &legal_[index(row) * static_cast<std::size_t>(about_.most_legal_actions)];
  }

  void play(std::int32_t row, std::int32_t i, std::int32_t flags, const sdg_outputs* outputs) noexcept {
    Slot<G>& s = slot(row);
    const std::int32_t action = pending(row).action;
    s.last.reward = 0;
    s.last.seat_reward.fill(0);
    pending(row).has_final = 0;
    s.last.acting_seat = s.ended != 0 ? -1 : G::seat(s.game);
    s.last.action_valid = s.ended == 0 && is_legal(row, action);
    if (s.ended == 0) {
      s.last.terminated = s.last.truncated = 0;
      if (s.last.action_valid != 0 || (flags & SDG_KEEP_ILLEGAL) == 0) move(row, action);
      if (s.ended != 0) {
        finals_[index(row)] = s.game;
        pending(row).has_final = 1;
      }
      if (s.ended != 0 && (flags & SDG_AUTO_RESET) != 0) begin_next(row);
    }
    if (outputs != nullptr) write(row, i, *outputs);
  }

  bool is_legal(std::int32_t row, std::int32_t action) noexcept {
    const std::int32_t* ids = legal_of(row);
    const std::int32_t* end = ids + G::legal(rules_, slot(row).game, legal_of(row));
    return std::find(ids, end, action) != end;
  }

  void move(std::int32_t row, std::int32_t action) noexcept {
    Slot<G>& s = slot(row);
    std::array<float, G::kSeats> before;
    for (std::int32_t seat = 0; seat < G::kSeats; ++seat) before[index(seat)] = G::score(s.game, seat);
    ++s.steps;
    numbering_.add_position(row);
    EventSink events(events_, row, static_cast<std::uint64_t>(s.steps));
    G::play(rules_, s.game, action, events);
    for (std::int32_t seat = 0; seat < G::kSeats; ++seat) {
      s.last.seat_reward[index(seat)] = G::score(s.game, seat) - before[index(seat)];
    }
    s.last.reward = s.last.seat_reward[index(s.last.acting_seat)];
    s.last.terminated = G::over(s.game);
    s.last.truncated = s.last.terminated == 0 && settings_.max_episode_steps > 0 &&
                       s.steps >= settings_.max_episode_steps;
    s.ended = s.last.terminated | s.last.truncated;
  }

  void write_final(std::int32_t row, std::int32_t i, const sdg_outputs& out) noexcept {
    if (pending(row).has_final == 0) return;
    if (out.final_board == nullptr && out.final_state == nullptr) return;
    const typename G::View view(rules_, finals_[index(row)], out.final_state != nullptr);
    if (out.final_board != nullptr) view.board(board_at(out.final_board, i));
    if (out.final_state != nullptr) view.state(out.final_state + index(i) * state_fields());
  }

  void write(std::int32_t row, std::int32_t i, const sdg_outputs& out) noexcept {
    const Slot<G>& s = slot(row);
    const std::size_t n = index(i);
    write_final(row, i, out);
    const bool moves = features(out);
    if (moves || out.board) {
      const typename G::View view(rules_, s.game, moves);
      if (out.board) view.board(board_at(out.board, i));
      if (out.state) view.state(out.state + n * state_fields());
      write_actions(row, n, &view, out);
    } else {
      write_actions(row, n, nullptr, out);
    }
    if (events_.on()) events_.write(row, G::seat(s.game), n, out);
    if (out.reward) out.reward[n] = s.last.reward;
    if (out.seat_reward) std::copy(s.last.seat_reward.begin(), s.last.seat_reward.end(), out.seat_reward + n * G::kSeats);
    if (out.acting_seat) out.acting_seat[n] = s.last.acting_seat;
    if (out.terminated) out.terminated[n] = s.last.terminated;
    if (out.truncated) out.truncated[n] = s.last.truncated;
    if (out.action_valid) out.action_valid[n] = s.last.action_valid;
    if (out.plies) out.plies[n] = G::plies(s.game);
    if (out.seat) out.seat[n] = G::seat(s.game);
    if (out.over) out.over[n] = G::over(s.game);
    for (std::int32_t seat = 0; out.scores && seat < G::kSeats; ++seat) {
      out.scores[n * G::kSeats + index(seat)] = G::score(s.game, seat);
    }
    if (out.env_id) out.env_id[n] = row;
    if (out.state_id) out.state_id[n] = numbering_.state_id(row);
    if (out.episode_id) out.episode_id[n] = numbering_.episode_id(row);
  }

  void write_actions(std::int32_t row, std::size_t n, const typename G::View* view,
                     const sdg_outputs& out) noexcept {
    const std::int32_t room = settings_.max_actions;
    std::int32_t* ids = legal_of(row);
    const std::int32_t total = slot(row).ended != 0 ? 0 : G::legal(rules_, slot(row).game, ids);
    const std::int32_t shown = std::min(total, room);
    if (total > room && std::find(ids + room, ids + total, about_.progress_action) != ids + total) {
      ids[room - 1] = about_.progress_action;
    }
    if (out.legal_action_count) out.legal_action_count[n] = shown;
    if (out.total_legal_action_count) out.total_legal_action_count[n] = total;
    if (out.action_truncated) out.action_truncated[n] = shown < total;
    const auto features = static_cast<std::size_t>(about_.num_action_features);
    const auto args = static_cast<std::size_t>(about_.num_action_args);
    const std::size_t first = n * index(room);
    for (std::int32_t a = 0; a < room; ++a) {
      const std::size_t entry = first + index(a);
      const bool legal = a < shown;
      if (out.action_id) out.action_id[entry] = legal ? ids[a] : -1;
      if (out.action_mask) out.action_mask[entry] = legal;
      std::int32_t* f = out.action_features ? out.action_features + entry * features : nullptr;
      std::uint8_t* m = out.action_arg_mask ? out.action_arg_mask + entry * args : nullptr;
      if (legal && view != nullptr) {
        view->action(ids[a], f, m);
      } else {
        if (f) std::fill_n(f, features, 0);
        if (m) std::fill_n(m, args, std::uint8_t{0});
      }
    }
  }

  [[nodiscard]] std::size_t state_fields() const noexcept {
    return static_cast<std::size_t>(about_.num_state_fields);
  }
  [[nodiscard]] BoardEntry* board_at(void* board, std::int32_t i) const noexcept {
    std::size_t entries = index(i);
    for (std::int32_t d = 0; d < about_.board_ndim; ++d) entries *= index(about_.board_shape[d]);
    return static_cast<BoardEntry*>(board) + entries;
  }

  const typename G::Rules rules_;
  const sdg_settings settings_;
  const sdg_description about_;
  const std::uint64_t fingerprint_;
  const ForkGuard guard_;
  EventLog events_;
  std::vector<Slot<G>> slots_;
  Numbering numbering_;
  std::vector<Pending> pending_;
  std::vector<State> finals_;  // where each row's last episode to end was left
  std::vector<std::int32_t> legal_;  // room to list a row's legal actions
  std::unique_ptr<Shared> shared_;
};

}  // namespace superdex
