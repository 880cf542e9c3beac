// A game for tests: many legal actions, and the one that moves the game on sorts last. One player
// counts down from a number; each position allows ids 0 … n − 1 that do nothing, and "count".

#include <algorithm>

#include "superdex/library.hpp"
#include "superdex/random.hpp"

namespace superdex {
namespace {

constexpr std::int32_t kIdle = 20;  // ids below it do nothing
constexpr std::int32_t kCount = kIdle;
constexpr Option kOptions[] = {{"start", 3, 1, 100}};
constexpr const char* kFields[] = {"left", "idle_actions"};
constexpr const char* kFeatures[] = {"id", "counts"};

struct Countdown {
  struct Rules {
    explicit Rules(const std::int64_t* options) : start(static_cast<std::int32_t>(options[0])) {}
    std::int32_t start;
  };
  struct State {
    SplitMix64 random;
    std::int32_t left = 0;
    std::int32_t plies = 0;
    std::int32_t idle = 0;  // how many ids do nothing here
    std::int32_t unused = 0;
  };
  struct View {
    View(const Rules&, const State& state, bool) noexcept : now(state) {}
    void board(std::int32_t* cells) const noexcept { cells[0] = now.left; }
    void state(std::int32_t* fields) const noexcept {
      fields[0] = now.left;
      fields[1] = now.idle;
    }
    void action(std::int32_t id, std::int32_t* features, std::uint8_t*) const noexcept {
      if (features == nullptr) return;
      features[0] = id;
      features[1] = id == kCount;
    }
    const State& now;
  };
  using BoardEntry = std::int32_t;
  static constexpr const char* kName = "countdown";
  static constexpr std::int32_t kSeats = 1;
  static constexpr std::int32_t kGrain = 64;
  static constexpr std::int32_t kSearchGrain = 64;

  static std::span<const Option> options() noexcept { return kOptions; }
  static std::span<const char* const> names(std::int32_t kind) noexcept {
    if (kind == SDG_STATE_FIELD) return kFields;
    if (kind == SDG_ACTION_FEATURE) return kFeatures;
    return {};
  }
  static void describe(const Rules&, sdg_description& about) noexcept {
    about.board_ndim = 1;
    about.board_shape[0] = 1;
    about.num_state_fields = std::size(kFields);
    about.num_actions = kIdle + 1;
    about.most_legal_actions = kIdle + 1;
    about.progress_action = kCount;
    about.num_action_features = std::size(kFeatures);
  }
  static void begin(const Rules& rules, State& state, std::uint64_t seed) noexcept {
    state = State{};
    state.random.counter = seed;
    state.left = rules.start;
    state.idle = state.random.below(kIdle + 1);
  }
  static void play(const Rules&, State& state, std::int32_t id, EventSink&) noexcept {
    state.left -= id == kCount;
    ++state.plies;
    state.idle = state.random.below(kIdle + 1);
  }
  static bool over(const State& state) noexcept { return state.left <= 0; }
  static std::int32_t seat(const State&) noexcept { return 0; }
  static std::int32_t plies(const State& state) noexcept { return state.plies; }
  static float score(const State& state, std::int32_t) noexcept { return state.left <= 0 ? 1.0F : 0.0F; }
  static std::int32_t legal(const Rules&, const State& state, std::int32_t* ids) noexcept {
    if (over(state)) return 0;
    for (std::int32_t id = 0; id < state.idle; ++id) ids[id] = id;
    ids[state.idle] = kCount;
    return state.idle + 1;
  }
  static bool sound(const Rules& rules, const State& state) noexcept {
    return state.idle >= 0 && state.idle <= kIdle && state.left >= 0 && state.left <= rules.start &&
           state.plies >= 0 && state.plies < (1 << 30);
  }
  static std::int32_t bot_move(const Rules&, const State&, std::int32_t, std::int32_t,
                               std::int32_t) noexcept {
    return kCount;
  }
};

}  // namespace

std::span<const GameEntry> library_games() noexcept {
  static constexpr GameEntry games[] = {entry<Countdown>()};
  return games;
}

}  // namespace superdex
