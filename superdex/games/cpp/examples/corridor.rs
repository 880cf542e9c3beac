//! The corridor of corridor.cpp once more, in Rust, on the standard library alone: nine cells, the
//! player starts in the middle, and the seed chose at which end the exit is. Actions: 0 left, 1
//! right; any other bumps into the wall. The functions behave as superdex_game.h says.
//!
//! rustc --edition 2021 -O --crate-type cdylib corridor.rs

use std::ffi::{c_char, c_void};
use std::mem::size_of;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::Mutex;

const VERSION: u64 = 1;
const CELLS: i32 = 9;
const MAGIC: i32 = 0x6372_6431;

const OK: i32 = 0;
const BAD_ARGUMENT: i32 = 1;
const BAD_ROW: i32 = 3;
const DUPLICATE_ROW: i32 = 4;
const STALE: i32 = 5;
const FORKED: i32 = 6;
const NO_MEMORY: i32 = 7;
const BAD_STATE: i32 = 8;
const UNSUPPORTED: i32 = 9;
const INTERNAL: i32 = 11;

const STATE_FIELD: i32 = 2;
const ACTION_FEATURE: i32 = 4;
const AUTO_RESET: i32 = 1;
const KEEP_ILLEGAL: i32 = 2;
const UINT8: i32 = 0;

#[repr(C)]
pub struct Description {
    size: u32,
    num_seats: i32,
    board_dtype: i32,
    board_ndim: i32,
    board_shape: [i32; 4],
    num_state_fields: i32,
    num_actions: i32,
    most_legal_actions: i32,
    progress_action: i32,
    num_action_features: i32,
    num_action_args: i32,
    num_event_features: i32,
    num_affected: i32,
    num_affected_features: i32,
    most_plies: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Settings {
    size: u32,
    num_games: i32,
    num_threads: i32,
    max_actions: i32,
    event_history: i32,
    max_episode_steps: i32,
    first_state_id: u64,
    first_episode_id: u64,
}

#[repr(C)]
pub struct Outputs {
    size: u32,
    reserved: u32,
    board: *mut c_void,
    state: *mut i32,
    action_id: *mut i32,
    action_features: *mut i32,
    action_arg_mask: *mut u8,
    action_mask: *mut u8,
    legal_action_count: *mut i32,
    total_legal_action_count: *mut i32,
    action_truncated: *mut u8,
    event_features: *mut i32,
    event_sequence: *mut u64,
    event_action_sequence: *mut u64,
    event_mask: *mut u8,
    event_affected: *mut i32,
    event_affected_mask: *mut u8,
    reward: *mut f32,
    seat_reward: *mut f32,
    acting_seat: *mut i32,
    terminated: *mut u8,
    truncated: *mut u8,
    action_valid: *mut u8,
    env_id: *mut i32,
    state_id: *mut u64,
    episode_id: *mut u64,
    plies: *mut i32,
    seat: *mut i32,
    over: *mut u8,
    scores: *mut f32,
    final_board: *mut c_void,
    final_state: *mut i32,
}

/// What the last call gave a row.
#[repr(C)]
#[derive(Clone, Copy)]
struct Last {
    acting_seat: i32,
    reward: i32,
    terminated: i32,
    truncated: i32,
    valid: i32,
}

const NOTHING: Last = Last { acting_seat: -1, reward: 0, terminated: 0, truncated: 0, valid: 0 };

/// What is captured.
#[repr(C)]
#[derive(Clone, Copy)]
struct Game {
    base: u64,
    episode: u64,
    cell: i32,
    exit: i32,
    steps: i32,
    ended: i32,
    magic: i32,
    last: Last,
}

#[derive(Clone, Copy)]
struct Row {
    game: Game,
    end: Option<Game>, // of the episode that the last step ended
    positions: u64,
    episodes: u64,
    call: u64,
    action: i32,
}

struct Table {
    rows: Vec<Row>,
    call: u64,
}

pub struct Batch {
    settings: Settings,
    table: Mutex<Table>,
    made_in: u32,
}

impl Batch {
    fn number(&self, count: u64, row: usize) -> u64 {
        count * self.settings.num_games as u64 + row as u64
    }
    fn state_id(&self, row: &Row, number: usize) -> u64 {
        self.settings.first_state_id + self.number(row.positions, number)
    }
}

fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn episode_seed(base: u64, row: u64, episode: u64) -> u64 {
    let start = base.wrapping_add(row.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    mix(mix(start).wrapping_add(episode))
}

impl Row {
    fn begin(&mut self, number: usize, seed: Option<u64>) {
        let game = &mut self.game;
        if let Some(seed) = seed {
            game.base = seed.wrapping_sub(number as u64);
        }
        game.episode = if seed.is_some() { 0 } else { game.episode + 1 };
        let used = seed.unwrap_or_else(|| episode_seed(game.base, number as u64, game.episode));
        game.cell = CELLS / 2;
        game.exit = if mix(used) & 1 == 1 { CELLS - 1 } else { 0 };
        game.steps = 0;
        game.ended = 0;
        self.positions += 1;
        self.episodes += 1;
    }

    /// Play the row's action; return whether that ended the episode.
    fn play(&mut self, most_steps: i32, flags: i32) -> bool {
        let game = &mut self.game;
        let (legal, open) = (self.action == 0 || self.action == 1, game.ended == 0);
        game.last = Last {
            acting_seat: if open { 0 } else { -1 },
            reward: 0,
            terminated: if open { 0 } else { game.last.terminated },
            truncated: if open { 0 } else { game.last.truncated },
            valid: (open && legal) as i32,
        };
        if !open || (!legal && flags & KEEP_ILLEGAL != 0) {
            return false;
        }
        let to = game.cell + if legal { 2 * self.action - 1 } else { 0 };
        if (0..CELLS).contains(&to) {
            game.cell = to;
        }
        game.steps += 1;
        self.positions += 1;
        let won = game.cell == game.exit;
        let cut = !won && most_steps > 0 && game.steps >= most_steps;
        game.last.terminated = won as i32;
        game.last.reward = won as i32;
        game.last.truncated = cut as i32;
        game.ended = (won || cut) as i32;
        won || cut
    }
}

/// Write an entry, unless the array was left out.
unsafe fn put<T>(to: *mut T, i: usize, value: T) {
    if !to.is_null() {
        to.add(i).write(value);
    }
}

unsafe fn write_position(board: *mut c_void, state: *mut i32, i: usize, game: &Game) {
    for c in 0..CELLS {
        // 1 the player, 2 the exit
        let entry = (c == game.cell) as u8 + 2 * (c == game.exit) as u8;
        put(board.cast::<u8>(), i * CELLS as usize + c as usize, entry);
    }
    put(state, 3 * i, game.cell);
    put(state, 3 * i + 1, game.exit);
    put(state, 3 * i + 2, game.steps);
}

unsafe fn write(batch: &Batch, row: &Row, number: usize, i: usize, out: &Outputs) {
    let (game, last) = (&row.game, &row.game.last);
    let total = if game.ended != 0 { 0 } else { 2 };
    let room = batch.settings.max_actions;
    let shown = total.min(room);
    write_position(out.board, out.state, i, game);
    if let Some(end) = &row.end {
        write_position(out.final_board, out.final_state, i, end);
    }
    for a in 0..room {
        let entry = i * room as usize + a as usize;
        put(out.action_id, entry, if a < shown { a } else { -1 });
        put(out.action_mask, entry, (a < shown) as u8);
        put(out.action_features, entry, if a < shown { a } else { 0 });
        put(out.action_arg_mask, entry, (a < shown) as u8);
    }
    put(out.legal_action_count, i, shown);
    put(out.total_legal_action_count, i, total);
    put(out.action_truncated, i, (shown < total) as u8);
    put(out.reward, i, last.reward as f32);
    put(out.seat_reward, i, last.reward as f32);
    put(out.acting_seat, i, last.acting_seat);
    put(out.terminated, i, last.terminated as u8);
    put(out.truncated, i, last.truncated as u8);
    put(out.action_valid, i, last.valid as u8);
    put(out.plies, i, game.steps);
    put(out.seat, i, 0);
    put(out.over, i, (game.cell == game.exit) as u8);
    put(out.scores, i, (game.cell == game.exit) as i32 as f32);
    put(out.env_id, i, number as i32);
    put(out.state_id, i, batch.state_id(row, number));
    let episode = batch.settings.first_episode_id + batch.number(row.episodes, number);
    put(out.episode_id, i, episode);
}

/// Check all rows, then call body(i, number, row) for each; a refusal leaves all as they are.
unsafe fn each(
    batch: *mut Batch,
    rows: *const i32,
    count: i32,
    mut body: impl FnMut(usize, usize, &mut Row),
    mut check: impl FnMut(usize, usize, &mut Row) -> i32,
) -> i32 {
    catch_unwind(AssertUnwindSafe(|| {
        let Some(batch) = batch.as_ref() else { return BAD_ARGUMENT };
        if count < 0 || (rows.is_null() && count != batch.settings.num_games) {
            return BAD_ARGUMENT;
        }
        if batch.made_in != std::process::id() {
            return FORKED;
        }
        let Ok(mut table) = batch.table.lock() else { return INTERNAL };
        let table = &mut *table;
        table.call += 1;
        let number = |i: usize| if rows.is_null() { i as i32 } else { *rows.add(i) };
        for i in 0..count as usize {
            let n = number(i);
            if n < 0 || n >= batch.settings.num_games {
                return BAD_ROW;
            }
            let row = &mut table.rows[n as usize];
            if row.call == table.call {
                return DUPLICATE_ROW;
            }
            row.call = table.call;
            let status = check(i, n as usize, row);
            if status != OK {
                return status;
            }
        }
        for i in 0..count as usize {
            let n = number(i) as usize;
            body(i, n, &mut table.rows[n]);
        }
        OK
    }))
    .unwrap_or(INTERNAL)
}

fn fine(_: usize, _: usize, _: &mut Row) -> i32 {
    OK
}

#[no_mangle]
pub extern "C" fn sdg_interface_stamp() -> u64 {
    VERSION << 48
        | (size_of::<Description>() as u64) << 32
        | (size_of::<Settings>() as u64) << 16
        | size_of::<Outputs>() as u64
}

#[no_mangle]
pub extern "C" fn sdg_game_name(game: i32) -> *const c_char {
    if game == 0 { c"corridor".as_ptr() } else { ptr::null() }
}

#[no_mangle]
pub extern "C" fn sdg_name(game: i32, kind: i32, index: i32) -> *const c_char {
    match (game, kind, index) {
        (0, STATE_FIELD, 0) => c"cell".as_ptr(),
        (0, STATE_FIELD, 1) => c"exit".as_ptr(),
        (0, STATE_FIELD, 2) => c"steps".as_ptr(),
        (0, ACTION_FEATURE, 0) => c"direction".as_ptr(),
        _ => ptr::null(),
    }
}

#[no_mangle]
pub unsafe extern "C" fn sdg_describe(game: i32, _: *const i64, about: *mut Description) -> i32 {
    if game != 0 || about.is_null() || (*about).size as usize != size_of::<Description>() {
        return BAD_ARGUMENT;
    }
    *about = Description {
        size: size_of::<Description>() as u32,
        num_seats: 1,
        board_dtype: UINT8,
        board_ndim: 1,
        board_shape: [CELLS, 0, 0, 0],
        num_state_fields: 3,
        num_actions: 2,
        most_legal_actions: 2,
        progress_action: -1,
        num_action_features: 1,
        num_action_args: 1,
        num_event_features: 0,
        num_affected: 0,
        num_affected_features: 0,
        most_plies: 0,
    };
    OK
}

#[no_mangle]
pub unsafe extern "C" fn sdg_create(
    game: i32,
    _: *const i64,
    settings: *const Settings,
    seeds: *const u64,
    batch: *mut *mut Batch,
) -> i32 {
    let Some(settings) = settings.as_ref() else { return BAD_ARGUMENT };
    if game != 0
        || seeds.is_null()
        || batch.is_null()
        || settings.size as usize != size_of::<Settings>()
        || settings.num_games < 1
        || settings.num_threads < 1
        || settings.max_actions < 1
        || settings.event_history < 0
        || settings.max_episode_steps < 0
    {
        return BAD_ARGUMENT;
    }
    if settings.event_history > 0 {
        return UNSUPPORTED;
    }
    let game =
        Game { base: 0, episode: 0, cell: 0, exit: 0, steps: 0, ended: 0, magic: MAGIC, last: NOTHING };
    let row = Row { game, end: None, positions: 0, episodes: 0, call: 0, action: 0 };
    let mut rows = Vec::new();
    // A plain allocation that fails ends the process.
    if rows.try_reserve_exact(settings.num_games as usize).is_err() {
        return NO_MEMORY;
    }
    rows.resize(settings.num_games as usize, row);
    let table = Table { rows, call: 0 };
    let made_in = std::process::id();
    *batch = Box::into_raw(Box::new(Batch { settings: *settings, table: Mutex::new(table), made_in }));
    sdg_reset(*batch, ptr::null(), settings.num_games, seeds, ptr::null(), ptr::null())
}

#[no_mangle]
pub unsafe extern "C" fn sdg_free(batch: *mut Batch) {
    if !batch.is_null() {
        drop(Box::from_raw(batch));
    }
}

#[no_mangle]
pub unsafe extern "C" fn sdg_reset(
    batch: *mut Batch,
    rows: *const i32,
    count: i32,
    seeds: *const u64,
    seeded: *const u8,
    outputs: *const Outputs,
) -> i32 {
    let body = |i: usize, n: usize, row: &mut Row| {
        let has_one = !seeds.is_null() && (seeded.is_null() || *seeded.add(i) != 0);
        row.begin(n, if has_one { Some(*seeds.add(i)) } else { None });
        row.game.last = NOTHING;
        row.end = None;
        if let Some(out) = outputs.as_ref() {
            write(&*batch, row, n, i, out);
        }
    };
    each(batch, rows, count, body, fine)
}

#[no_mangle]
pub unsafe extern "C" fn sdg_step(
    batch: *mut Batch,
    rows: *const i32,
    count: i32,
    actions: *const i32,
    state_ids: *const u64,
    flags: i32,
    outputs: *const Outputs,
) -> i32 {
    if batch.is_null() || actions.is_null() {
        return BAD_ARGUMENT;
    }
    let most_steps = (*batch).settings.max_episode_steps;
    let body = |i: usize, n: usize, row: &mut Row| {
        let ended = row.play(most_steps, flags);
        row.end = if ended { Some(row.game) } else { None };
        if ended && flags & AUTO_RESET != 0 {
            row.begin(n, None);
        }
        if let Some(out) = outputs.as_ref() {
            write(&*batch, row, n, i, out);
        }
    };
    let check = |i: usize, n: usize, row: &mut Row| {
        row.action = *actions.add(i);
        let stale = !state_ids.is_null() && *state_ids.add(i) != (*batch).state_id(row, n);
        if stale { STALE } else { OK }
    };
    each(batch, rows, count, body, check)
}

#[no_mangle]
pub unsafe extern "C" fn sdg_observe(
    batch: *mut Batch,
    rows: *const i32,
    count: i32,
    outputs: *const Outputs,
) -> i32 {
    let Some(out) = outputs.as_ref() else { return BAD_ARGUMENT };
    each(batch, rows, count, |i, n, row| write(&*batch, row, n, i, out), fine)
}

#[no_mangle]
pub extern "C" fn sdg_state_size(_: *const Batch) -> i64 {
    size_of::<Game>() as i64
}

#[no_mangle]
pub unsafe extern "C" fn sdg_capture(
    batch: *mut Batch,
    rows: *const i32,
    count: i32,
    states: *mut u8,
) -> i32 {
    let to = states.cast::<Game>();
    each(batch, rows, count, |i, _, row| to.add(i).write(row.game), fine)
}

#[no_mangle]
pub unsafe extern "C" fn sdg_restore(
    batch: *mut Batch,
    rows: *const i32,
    count: i32,
    states: *const u8,
) -> i32 {
    let from = states.cast::<Game>();
    let body = |i: usize, _: usize, row: &mut Row| {
        row.game = *from.add(i);
        row.end = None;
        row.positions += 1;
        row.episodes += 1;
    };
    let check = |i: usize, _: usize, _: &mut Row| {
        let game = &*from.add(i);
        let placed = (0..CELLS).contains(&game.cell) && (game.exit == 0 || game.exit == CELLS - 1);
        let counted = (0..1 << 30).contains(&game.steps); // so that steps can't overflow
        if placed && counted && game.magic == MAGIC { OK } else { BAD_STATE }
    };
    each(batch, rows, count, body, check)
}
