// Tic-tac-toe on superdex's headers: the rules of one game, and nothing else. Build it together with
// src/interface.cpp, which has the C functions.
#include <array>
#include <iterator>

#include "superdex/library.hpp"

namespace {

using i32 = std::int32_t;
using Names = std::span<const char* const>;

constexpr const char* kPlanes[] = {"own", "other"};
constexpr const char* kFields[] = {"ply"};
constexpr const char* kFeatures[] = {"cell"};
constexpr std::array<std::size_t, 3> kLines[] = {{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {0, 3, 6},
                                                 {1, 4, 7}, {2, 5, 8}, {0, 4, 8}, {2, 4, 6}};

struct TicTacToe {
  static constexpr const char* kName = "tic_tac_toe";
  static constexpr i32 kSeats = 2;
  static constexpr i32 kGrain = 256;  // so small a game is worth a thread only by the hundred
  static constexpr i32 kSearchGrain = 256;
  using BoardEntry = std::uint8_t;

  // There are no options.
  struct Rules {
    explicit Rules(const std::int64_t*) noexcept {}
  };
  struct State {
    std::array<std::int8_t, 9> cells{};  // 0 free, 1 and 2 the seats' marks
    std::int8_t plies = 0;
    std::int8_t winner = 0;  // a mark
    std::int8_t unused[5] = {};  // captured as bytes: a multiple of 8, and no padding
  };
  struct View {
    View(const Rules&, const State& state, bool) noexcept : now(state), mark(mark_of(state)) {}
    void board(std::uint8_t* cells) const noexcept {
      for (std::size_t c = 0; c < 9; ++c) {
        cells[c] = now.cells[c] == mark;
        cells[9 + c] = now.cells[c] == 3 - mark;
      }
    }
    void state(i32* fields) const noexcept { fields[0] = now.plies; }
    void action(i32 id, i32* features, std::uint8_t*) const noexcept {
      if (features != nullptr) features[0] = id;
    }
    const State& now;
    std::int8_t mark;
  };

  static std::span<const superdex::Option> options() noexcept { return {}; }
  static Names names(i32 kind) noexcept {
    if (kind == SDG_BOARD_CHANNEL) return kPlanes;
    if (kind == SDG_STATE_FIELD) return kFields;
    if (kind == SDG_ACTION_FEATURE) return kFeatures;
    return {};
  }
  static void describe(const Rules&, sdg_description& about) noexcept {
    about.board_ndim = 3;
    about.board_shape[0] = std::size(kPlanes);
    about.board_shape[1] = about.board_shape[2] = 3;
    about.num_state_fields = std::size(kFields);
    about.num_actions = about.most_legal_actions = 9;
    about.num_action_features = std::size(kFeatures);
    about.most_plies = 9;
  }

  static void begin(const Rules&, State& state, std::uint64_t) noexcept { state = State{}; }
  // Who names no free cell loses.
  static void play(const Rules&, State& state, i32 id, superdex::EventSink&) noexcept {
    const std::int8_t mark = mark_of(state);
    const auto cell = static_cast<std::size_t>(id);
    ++state.plies;
    if (cell >= 9 || state.cells[cell] != 0) {
      state.winner = static_cast<std::int8_t>(3 - mark);
      return;
    }
    state.cells[cell] = mark;
    for (const auto& [a, b, c] : kLines) {
      if (state.cells[a] == mark && state.cells[b] == mark && state.cells[c] == mark) state.winner = mark;
    }
  }
  static bool over(const State& state) noexcept { return state.winner != 0 || state.plies == 9; }
  static i32 seat(const State& state) noexcept { return state.plies % 2; }
  static i32 plies(const State& state) noexcept { return state.plies; }
  static float score(const State& state, i32 seat) noexcept {
    if (state.winner == 0) return 0;
    return state.winner == seat + 1 ? 1.0F : -1.0F;
  }
  static i32 legal(const Rules&, const State& state, i32* ids) noexcept {
    i32 count = 0;
    for (i32 c = 0; c < 9; ++c) {
      if (state.cells[static_cast<std::size_t>(c)] == 0) ids[count++] = c;
    }
    return count;
  }
  static bool sound(const Rules&, const State& state) noexcept {
    // Not more marks than plies, so that a game that goes on has a free cell.
    std::int8_t marks = 0;
    for (const std::int8_t cell : state.cells) {
      if (cell < 0 || cell > 2) return false;
      marks = static_cast<std::int8_t>(marks + (cell != 0));
    }
    return marks <= state.plies && state.plies <= 9 && state.winner >= 0 && state.winner <= 2;
  }
  static i32 bot_move(const Rules&, const State&, i32, i32, i32) noexcept { return -1; }  // no bots

 private:
  static std::int8_t mark_of(const State& state) noexcept {
    return static_cast<std::int8_t>(1 + state.plies % 2);
  }
};

}  // namespace

std::span<const superdex::GameEntry> superdex::library_games() noexcept {
  static constexpr GameEntry games[] = {entry<TicTacToe>()};
  return games;
}
