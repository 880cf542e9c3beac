// An engine in one file, on superdex_game.h alone: a corridor of nine cells. The player starts in the
// middle, and the seed chose at which end the exit is, four steps away. Actions: 0 left, 1 right; any
// other bumps into the wall. Calls take turns under a lock: so small a game gains nothing from threads.
#include <unistd.h>

#include <memory>
#include <mutex>
#include "superdex_game.h"

using i32 = std::int32_t;
using u64 = std::uint64_t;
constexpr i32 kCells = 9, kMagic = 0x63726431;
constexpr const char* kFields[] = {"cell", "exit", "steps"};
struct Last { i32 acting_seat = -1, reward = 0, terminated = 0, truncated = 0, valid = 0; };
struct Game { u64 base = 0, episode = 0; i32 cell = 0, exit = 0, steps = 0, ended = 0, magic = kMagic; Last last; };
struct Row { Game game, final; u64 positions, episodes, call; i32 action; bool has_final; };

struct sdg_batch {
  sdg_settings settings;
  std::unique_ptr<Row[]> rows;
  std::mutex turn{};
  u64 call = 0;  // numbers the calls: a row that has the present one was named before
  pid_t made_in = getpid();
  Row& row(i32 n) const noexcept { return rows[u64(n)]; }
  u64 number(u64 count, i32 n) const noexcept { return count * u64(settings.num_games) + u64(n); }
  u64 state_id(i32 n) const noexcept { return settings.first_state_id + number(row(n).positions, n); }
};

static void begin(Row& row, i32 n, const u64* seed) noexcept {
  Game& game = row.game;
  if (seed) game.base = *seed - u64(n);
  game.episode = seed ? 0 : game.episode + 1;
  const u64 used = seed ? *seed : sdg_episode_seed(game.base, u64(n), game.episode);
  game.cell = kCells / 2, game.exit = sdg_mix(used) & 1 ? kCells - 1 : 0, game.steps = game.ended = 0;
  ++row.positions, ++row.episodes;
}

// Play the row's action; return whether that ended the episode.
static bool play(Row& row, i32 most_steps, i32 flags) noexcept {
  Game& game = row.game;
  const bool legal = row.action == 0 || row.action == 1, open = !game.ended;
  const i32 to = game.cell + (legal ? 2 * row.action - 1 : 0);
  game.last = {open ? 0 : -1, 0, open ? 0 : game.last.terminated, open ? 0 : game.last.truncated, open && legal};
  if (!open || (!legal && (flags & SDG_KEEP_ILLEGAL))) return false;
  if (to >= 0 && to < kCells) game.cell = to;
  ++game.steps, ++row.positions;
  game.last.terminated = game.last.reward = game.cell == game.exit;
  game.last.truncated = !game.last.terminated && most_steps > 0 && game.steps >= most_steps;
  return (game.ended = game.last.terminated | game.last.truncated) != 0;
}

template <class T, class U> static void put(T* to, std::ptrdiff_t i, U v) noexcept { if (to) to[i] = T(v); }
static void write_position(void* board, i32* state, std::ptrdiff_t i, const Game& game) noexcept {
  for (i32 c = 0; c < kCells; ++c) {  // 1 the player, 2 the exit
    put(static_cast<std::uint8_t*>(board), kCells * i + c, (c == game.cell) + 2 * (c == game.exit));
  }
  put(state, 3 * i, game.cell), put(state, 3 * i + 1, game.exit), put(state, 3 * i + 2, game.steps);
}

static void write(const sdg_batch& b, i32 n, std::ptrdiff_t i, const sdg_outputs& out) noexcept {
  const Game& game = b.row(n).game;
  const Last& last = game.last;
  const i32 total = game.ended ? 0 : 2, room = b.settings.max_actions, shown = total < room ? total : room;
  write_position(out.board, out.state, i, game);
  if (b.row(n).has_final) write_position(out.final_board, out.final_state, i, b.row(n).final);
  for (i32 a = 0; a < room; ++a) {
    put(out.action_id, i * room + a, a < shown ? a : -1), put(out.action_mask, i * room + a, a < shown);
    put(out.action_features, i * room + a, a < shown ? a : 0), put(out.action_arg_mask, i * room + a, a < shown);
  }
  put(out.legal_action_count, i, shown), put(out.total_legal_action_count, i, total);
  put(out.action_truncated, i, shown < total), put(out.acting_seat, i, last.acting_seat);
  put(out.reward, i, last.reward), put(out.seat_reward, i, last.reward), put(out.action_valid, i, last.valid);
  put(out.terminated, i, last.terminated), put(out.truncated, i, last.truncated);
  put(out.plies, i, game.steps), put(out.seat, i, 0), put(out.over, i, game.cell == game.exit);
  put(out.scores, i, game.cell == game.exit), put(out.env_id, i, n), put(out.state_id, i, b.state_id(n));
  put(out.episode_id, i, b.settings.first_episode_id + b.number(b.row(n).episodes, n));
}

// Check all rows, then call body(i, number, row) for each; a refusal leaves all as they are.
template <class Body, class Check>
static i32 each(sdg_batch* b, const i32* rows, i32 count, Body body, Check check) noexcept {
  if (!b || count < 0 || (!rows && count != b->settings.num_games)) return SDG_BAD_ARGUMENT;
  if (b->made_in != getpid()) return SDG_FORKED;
  const std::lock_guard lock(b->turn);
  ++b->call;
  for (i32 i = 0; i < count; ++i) {
    const i32 n = rows ? rows[i] : i;
    if (n < 0 || n >= b->settings.num_games) return SDG_BAD_ROW;
    if (b->row(n).call == b->call) return SDG_DUPLICATE_ROW;
    b->row(n).call = b->call;
    if (const i32 status = check(i, n)) return status;
  }
  for (i32 i = 0; i < count; ++i) body(i, rows ? rows[i] : i, b->row(rows ? rows[i] : i));
  return SDG_OK;
}
static i32 fine(i32, i32) noexcept { return SDG_OK; }
u64 sdg_interface_stamp() noexcept { return SDG_STAMP; }
const char* sdg_game_name(i32 game) noexcept { return game == 0 ? "corridor" : nullptr; }
const char* sdg_name(i32 game, i32 kind, i32 i) noexcept {
  if (game != 0 || i < 0) return nullptr;
  return kind == SDG_ACTION_FEATURE && i < 1 ? "direction" : kind == SDG_STATE_FIELD && i < 3 ? kFields[i] : nullptr;
}
i32 sdg_describe(i32 game, const std::int64_t*, sdg_description* about) noexcept {
  if (game != 0 || !about || about->size != sizeof *about) return SDG_BAD_ARGUMENT;
  *about = {sizeof *about, 1, SDG_UINT8, 1, {kCells, 0, 0, 0}, 3, 2, 2, -1, 1, 1, 0, 0, 0, 0};
  return SDG_OK;
}
i32 sdg_create(i32 game, const std::int64_t*, const sdg_settings* s, const u64* seeds, sdg_batch** batch) noexcept try {
  if (game != 0 || !s || !seeds || !batch || s->size != sizeof *s || s->num_games < 1 || s->num_threads < 1 ||
      s->max_actions < 1 || s->event_history < 0 || s->max_episode_steps < 0) return SDG_BAD_ARGUMENT;
  if (s->event_history > 0) return SDG_UNSUPPORTED;
  *batch = new sdg_batch{*s, std::make_unique<Row[]>(u64(s->num_games))};
  return sdg_reset(*batch, nullptr, s->num_games, seeds, nullptr, nullptr);
} catch (...) { return SDG_NO_MEMORY; }
void sdg_free(sdg_batch* batch) noexcept { delete batch; }
i32 sdg_reset(sdg_batch* b, const i32* rows, i32 count, const u64* seeds, const std::uint8_t* seeded, const sdg_outputs* out) noexcept {
  return each(b, rows, count, [&](i32 i, i32 n, Row& row) noexcept {
    begin(row, n, seeds && (!seeded || seeded[i]) ? seeds + i : nullptr), row.game.last = Last{}, row.has_final = false;
    if (out) write(*b, n, i, *out);
  }, fine);
}
i32 sdg_step(sdg_batch* b, const i32* rows, i32 count, const i32* actions, const u64* ids, i32 flags,
             const sdg_outputs* out) noexcept {
  return each(actions ? b : nullptr, rows, count, [&](i32 i, i32 n, Row& row) noexcept {
    row.has_final = play(row, b->settings.max_episode_steps, flags);
    if (row.has_final) row.final = row.game;
    if (row.has_final && (flags & SDG_AUTO_RESET)) begin(row, n, nullptr);
    if (out) write(*b, n, i, *out);
  }, [&](i32 i, i32 n) noexcept -> i32 {
    b->row(n).action = actions[i];
    return ids && ids[i] != b->state_id(n) ? SDG_STALE : SDG_OK;
  });
}
i32 sdg_observe(sdg_batch* b, const i32* rows, i32 count, const sdg_outputs* out) noexcept {
  return each(out ? b : nullptr, rows, count, [&](i32 i, i32 n, Row&) noexcept { write(*b, n, i, *out); }, fine);
}
std::int64_t sdg_state_size(const sdg_batch*) noexcept { return sizeof(Game); }
i32 sdg_capture(sdg_batch* b, const i32* rows, i32 count, std::uint8_t* states) noexcept {
  return each(b, rows, count, [&](i32 i, i32, const Row& row) noexcept { reinterpret_cast<Game*>(states)[i] = row.game; }, fine);
}
i32 sdg_restore(sdg_batch* b, const i32* rows, i32 count, const std::uint8_t* states) noexcept {
  const Game* from = reinterpret_cast<const Game*>(states);
  const auto put_back = [&](i32 i, i32, Row& row) noexcept { row.game = from[i], row.has_final = false, ++row.positions, ++row.episodes; };
  return each(b, rows, count, put_back, [&](i32 i, i32) noexcept -> i32 {
    const bool placed = from[i].cell >= 0 && from[i].cell < kCells && (from[i].exit == 0 || from[i].exit == kCells - 1);
    const bool counted = from[i].steps >= 0 && from[i].steps < 1 << 30;  // so that steps can't overflow
    return placed && counted && from[i].magic == kMagic ? SDG_OK : SDG_BAD_STATE;
  });
}
