/* The C interface between a game engine and superdex, version 1.
 *
 * A library offers one or more games. A *batch* holds many games of one kind; a call names some of
 * its *rows* (its games by number) or all of them, and works on all that it named:
 *
 *     sdg_create ──► sdg_reset ──► sdg_step ──► sdg_step ──► …  ──► sdg_free
 *                                     │ one call: plays the actions, begins new episodes where asked,
 *                                     ▼           and writes what the players see now
 *                                sdg_outputs: arrays of the caller, one entry per row named
 *
 * Rules for an engine
 *   - No exception and no panic leaves a function; every function that can fail returns a status.
 *   - A call that returns another status than SDG_OK has changed nothing: no game and no output.
 *   - A move that the rules forbid is an event of the game, never an error of the call.
 *   - Sizes, names and constants are asked from the library (sdg_describe, sdg_name), never assumed.
 *     Outputs of size 0 have null pointers; a game without options may be given null for them.
 *   - Results depend on seeds and actions alone: not on threads, nor on how rows are grouped.
 *   - Nothing of the caller's is kept after a call: no pointer, no array.
 *
 * Rules for a caller
 *   - Arrays are C-contiguous, aligned for their type, and outputs overlap neither each other nor
 *     `rows`. `actions` and `state_ids` may lie in the outputs: they are read before those are
 *     written.
 *   - Threads: each function says who may call it. "Any thread, rows disjoint" means that calls of
 *     several threads may run at the same time; calls that share a row run one after the other.
 *   - After fork() the child may only free the batches made before; what else it asks of them
 *     returns SDG_FORKED.
 */
#ifndef SUPERDEX_GAME_H
#define SUPERDEX_GAME_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define SDG_NOEXCEPT noexcept
#else
#define SDG_NOEXCEPT
#endif

#if defined(_WIN32)
#define SDG_EXPORT __declspec(dllexport)
#else
#define SDG_EXPORT __attribute__((visibility("default")))
#endif

/* Raised by one with every change that old callers or engines would misread. */
#define SDG_INTERFACE_VERSION 1

/* Threads that a batch can be made with. */
#define SDG_MOST_THREADS 1024

/* What a call came to. */
enum {
  SDG_OK = 0,
  SDG_BAD_ARGUMENT = 1,  /* a null pointer, an unknown game or bot, a size out of range */
  SDG_BAD_OPTION = 2,    /* an option of the game is out of its range */
  SDG_BAD_ROW = 3,       /* a row is not in 0 … num_games − 1 */
  SDG_DUPLICATE_ROW = 4, /* a row is named twice */
  SDG_STALE = 5,         /* a state id is not the row's present one */
  SDG_FORKED = 6,        /* the batch was made before this process was forked off */
  SDG_NO_MEMORY = 7,     /* memory or threads can't be had */
  SDG_BAD_STATE = 8,     /* bytes to restore are damaged, or of another game or other options */
  SDG_UNSUPPORTED = 9,   /* the game does not offer this */
  SDG_EXHAUSTED = 10,    /* 2^44 positions were numbered: make a new batch */
  SDG_INTERNAL = 11      /* a fault of the engine */
};

/* The type of a board's entries. */
enum { SDG_UINT8 = 0, SDG_INT32 = 1 };

/* What sdg_name names. */
enum {
  SDG_OPTION = 0,
  SDG_BOARD_CHANNEL = 1, /* the entries of the board's first axis */
  SDG_STATE_FIELD = 2,
  SDG_ACTION = 3, /* may be empty: games may have too many actions for names */
  SDG_ACTION_FEATURE = 4,
  SDG_EVENT_FEATURE = 5,
  SDG_AFFECTED_FEATURE = 6,
  SDG_BOT = 7
};

/* How sdg_step plays; bits. */
enum {
  SDG_AUTO_RESET = 1,  /* a game that ends begins its next episode before it is observed */
  SDG_KEEP_ILLEGAL = 2 /* an action that is not legal leaves its game as it is (action_valid 0);
                          without it the game's rules say what such an action leads to */
};

/* What the arrays of a game look like, for given options. */
typedef struct sdg_description {
  uint32_t size; /* in: sizeof(sdg_description) of the caller */
  int32_t num_seats;
  int32_t board_dtype;
  int32_t board_ndim;     /* 1 … 4 */
  int32_t board_shape[4]; /* the first board_ndim count */
  int32_t num_state_fields;
  int32_t num_actions;        /* ids are 0 … num_actions − 1 */
  int32_t most_legal_actions; /* in any position */
  int32_t progress_action;    /* the action that always moves the game on, kept where rows are too few;
                                 −1 for none */
  int32_t num_action_features;
  int32_t num_action_args; /* the first so many action features are arguments */
  int32_t num_event_features;
  int32_t num_affected; /* sub-records of an event, at most */
  int32_t num_affected_features;
  int32_t most_plies; /* of an episode; 0 where nothing bounds it */
} sdg_description;

/* How a batch is made. */
typedef struct sdg_settings {
  uint32_t size; /* sizeof(sdg_settings) of the caller */
  int32_t num_games;
  int32_t num_threads;       /* 1 … SDG_MOST_THREADS, the caller's own included */
  int32_t max_actions;       /* rows of actions in the outputs, ≥ 1 */
  int32_t event_history;     /* events a seat is shown, ≥ 0; SDG_UNSUPPORTED if > 0 without events */
  int32_t max_episode_steps; /* accepted actions after which an episode is truncated; 0 for none */
  uint64_t first_state_id;   /* added to every state id */
  uint64_t first_episode_id; /* added to every episode id */
} sdg_settings;

/* Where a call writes; a null pointer leaves that array out. n: rows named by the call, A:
 * max_actions, K: event_history; the rest as described by the library. Everything is as the seat to
 * move sees it, unless said otherwise. */
typedef struct sdg_outputs {
  uint32_t size; /* sizeof(sdg_outputs) of the caller */
  uint32_t reserved;
  void *board;                        /* [n, board_shape…] of board_dtype */
  int32_t *state;                     /* [n, num_state_fields] */
  int32_t *action_id;                 /* [n, A]; −1 in padding. Legal ids in the game's order; where
                                         they are too many, the first A − 1 and the progress action,
                                         or the first A where there is none */
  int32_t *action_features;           /* [n, A, num_action_features]; 0 in padding */
  uint8_t *action_arg_mask;           /* [n, A, num_action_args]; 1: the argument applies */
  uint8_t *action_mask;               /* [n, A]; 1: a legal action */
  int32_t *legal_action_count;        /* [n]; of the rows above. 0 once the episode has ended */
  int32_t *total_legal_action_count;  /* [n]; of the game */
  uint8_t *action_truncated;          /* [n]; 1: not every legal action is listed */
  int32_t *event_features;            /* [n, K, num_event_features]; chronological, right-aligned */
  uint64_t *event_sequence;           /* [n, K]; of this seat: 1 is the first it saw */
  uint64_t *event_action_sequence;    /* [n, K]; the action of the episode that caused it, from 1 */
  uint8_t *event_mask;                /* [n, K]; 1: an event */
  int32_t *event_affected;            /* [n, K, num_affected, num_affected_features] */
  uint8_t *event_affected_mask;       /* [n, K, num_affected] */
  float *reward;                      /* [n]; of the seat that acted, for its action */
  float *seat_reward;                 /* [n, num_seats]; of every seat, for that action */
  int32_t *acting_seat;               /* [n]; the seat that acted; −1 after a reset */
  uint8_t *terminated;                /* [n]; the action ended the game */
  uint8_t *truncated;                 /* [n]; max_episode_steps ended the episode */
  uint8_t *action_valid;              /* [n]; the action was legal. 0 after a reset */
  int32_t *env_id;                    /* [n]; the row */
  uint64_t *state_id;                 /* [n]; new with every position, unique in the batch */
  uint64_t *episode_id;               /* [n]; new with every episode, unique in the batch */
  int32_t *plies;                     /* [n]; moves made in the game */
  int32_t *seat;                      /* [n]; to move */
  uint8_t *over;                      /* [n]; the game itself has ended */
  float *scores;                      /* [n, num_seats] */
  void *final_board;                  /* as board, of the end of the episode, in rows whose last call
                                         was a step that ended one; the others are left as they are */
  int32_t *final_state;               /* as state, likewise */
} sdg_outputs;

/* A batch of games, the library's own. */
typedef struct sdg_batch sdg_batch;

/* The seed of episode e ≥ 1 of a row, counted from its last seeded reset (episode 0 has the seed
 * given there). `base` is that seed minus the row's number, modulo 2^64, so that a batch reset with
 * seed + row has base = seed. The mix is the output function of SplitMix64 (Steele, Lea and Flood,
 * "Fast splittable pseudorandom number generators", 2014), applied twice. */
static inline uint64_t sdg_mix(uint64_t x) {
  x += UINT64_C(0x9E3779B97F4A7C15);
  x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
  return x ^ (x >> 31);
}
static inline uint64_t sdg_episode_seed(uint64_t base, uint64_t row, uint64_t episode) {
  return sdg_mix(sdg_mix(base + row * UINT64_C(0x9E3779B97F4A7C15)) + episode);
}

/* Return SDG_STAMP as the library was built: version and struct sizes in one number. Any thread. */
#define SDG_STAMP                                                                          \
  ((uint64_t)SDG_INTERFACE_VERSION << 48 | (uint64_t)sizeof(sdg_description) << 32 |       \
   (uint64_t)sizeof(sdg_settings) << 16 | (uint64_t)sizeof(sdg_outputs))
SDG_EXPORT uint64_t sdg_interface_stamp(void) SDG_NOEXCEPT;

/* Return the name of a game, as long as the library lives; null past the last. Any thread. */
SDG_EXPORT const char *sdg_game_name(int32_t game) SDG_NOEXCEPT;

/* Return a name of a kind, as long as the library lives; null past the last. Any thread. */
SDG_EXPORT const char *sdg_name(int32_t game, int32_t kind, int32_t index) SDG_NOEXCEPT;

/* Write an option's default, least and greatest value. A library without options need not have this
 * function. Any thread. */
SDG_EXPORT int32_t sdg_option_range(int32_t game, int32_t index, int64_t range[3]) SDG_NOEXCEPT;

/* Describe a game. `options` has a value for each option, in the order of their names. Any thread. */
SDG_EXPORT int32_t sdg_describe(int32_t game, const int64_t *options,
                                sdg_description *description) SDG_NOEXCEPT;

/* Make a batch, each game begun with its seed ([num_games]), and the threads it uses; all memory is
 * taken here. Any thread. */
SDG_EXPORT int32_t sdg_create(int32_t game, const int64_t *options, const sdg_settings *settings,
                              const uint64_t *seeds, sdg_batch **batch) SDG_NOEXCEPT;

/* Give a batch back; null is fine. One thread, while no call on the batch runs. */
SDG_EXPORT void sdg_free(sdg_batch *batch) SDG_NOEXCEPT;

/* Begin new episodes. `rows` [count], or null for all of them in order (count = num_games). With
 * `seeds` [count], those are the episodes' seeds and the base of later ones; with null each row goes
 * on to its next episode, and so do the rows where `seeded` [count], if it is given, is 0. Then write
 * the outputs, if any. Any thread, rows disjoint. */
SDG_EXPORT int32_t sdg_reset(sdg_batch *batch, const int32_t *rows, int32_t count,
                             const uint64_t *seeds, const uint8_t *seeded,
                             const sdg_outputs *outputs) SDG_NOEXCEPT;

/* Play one action per row, then write the outputs, if any. Where `state_ids` [count] is given, all
 * are compared with the rows' own before anything moves. An episode that has ended (terminated or
 * truncated, without SDG_AUTO_RESET) stays as it is: its flags stay, it pays nothing again, and
 * action_valid is 0. Any thread, rows disjoint. */
SDG_EXPORT int32_t sdg_step(sdg_batch *batch, const int32_t *rows, int32_t count,
                            const int32_t *actions, const uint64_t *state_ids, int32_t flags,
                            const sdg_outputs *outputs) SDG_NOEXCEPT;

/* Write the outputs as the last call left the rows: nothing moves. With few pointers it lists legal
 * actions only, or records (plies, seat, over, scores), or ids. Any thread, rows disjoint. */
SDG_EXPORT int32_t sdg_observe(sdg_batch *batch, const int32_t *rows, int32_t count,
                               const sdg_outputs *outputs) SDG_NOEXCEPT;

/* Return how many bytes one captured game has in this batch. Any thread. */
SDG_EXPORT int64_t sdg_state_size(const sdg_batch *batch) SDG_NOEXCEPT;

/* Write the games' whole states, [count, sdg_state_size]: what they are, what their last step gave,
 * their events and seeds to come. Equal games give equal bytes. `states` is aligned to 8 bytes, here
 * and for sdg_restore, and the size is a multiple of 8. Any thread, rows disjoint. */
SDG_EXPORT int32_t sdg_capture(sdg_batch *batch, const int32_t *rows, int32_t count,
                               uint8_t *states) SDG_NOEXCEPT;

/* Put captured games into rows, of this batch or of one made alike (game, options, event_history);
 * they get new state and episode ids. All bytes are checked before any row changes. Any thread, rows
 * disjoint. */
SDG_EXPORT int32_t sdg_restore(sdg_batch *batch, const int32_t *rows, int32_t count,
                               const uint8_t *states) SDG_NOEXCEPT;

/* Write the move of a bot for each row where `wanted` [count] is not 0 (null: for all) and the
 * episode goes on, else −1. Bots see what the seat to move sees, and are deterministic. depth and
 * nodes bound those that search; 0 is their default. A library without bots need not have this
 * function. Any thread, rows disjoint. */
SDG_EXPORT int32_t sdg_bot_moves(sdg_batch *batch, int32_t bot, int32_t depth, int32_t nodes,
                                 const int32_t *rows, int32_t count, const uint8_t *wanted,
                                 int32_t *moves) SDG_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SUPERDEX_GAME_H */
