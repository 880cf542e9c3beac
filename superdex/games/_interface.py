"""The C interface of `superdex_game.h` as ctypes sees it: structs, signatures, constants."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any

import numpy as np

__all__ = [
    "AUTO_RESET",
    "BOARD_DTYPES",
    "INTERFACE_VERSION",
    "KEEP_ILLEGAL",
    "MOST_THREADS",
    "OPTIONAL",
    "SIGNATURES",
    "STAMP",
    "Description",
    "Kind",
    "Outputs",
    "Settings",
    "Status",
]

INTERFACE_VERSION = 1
AUTO_RESET = 1
KEEP_ILLEGAL = 2
MOST_THREADS = 1024
BOARD_DTYPES: dict[int, np.dtype] = {0: np.dtype(np.uint8), 1: np.dtype(np.int32)}


class Status:
    """What a call came to."""

    OK = 0
    BAD_ARGUMENT = 1
    BAD_OPTION = 2
    BAD_ROW = 3
    DUPLICATE_ROW = 4
    STALE = 5
    FORKED = 6
    NO_MEMORY = 7
    BAD_STATE = 8
    UNSUPPORTED = 9
    EXHAUSTED = 10
    INTERNAL = 11


class Kind:
    """What `sdg_name` names."""

    OPTION = 0
    BOARD_CHANNEL = 1
    STATE_FIELD = 2
    ACTION = 3
    ACTION_FEATURE = 4
    EVENT_FEATURE = 5
    AFFECTED_FEATURE = 6
    BOT = 7


class Description(ctypes.Structure):
    """`sdg_description`."""

    _fields_ = [
        ("size", c_uint32),
        ("num_seats", c_int32),
        ("board_dtype", c_int32),
        ("board_ndim", c_int32),
        ("board_shape", c_int32 * 4),
        ("num_state_fields", c_int32),
        ("num_actions", c_int32),
        ("most_legal_actions", c_int32),
        ("progress_action", c_int32),
        ("num_action_features", c_int32),
        ("num_action_args", c_int32),
        ("num_event_features", c_int32),
        ("num_affected", c_int32),
        ("num_affected_features", c_int32),
        ("most_plies", c_int32),
    ]


class Settings(ctypes.Structure):
    """`sdg_settings`."""

    _fields_ = [
        ("size", c_uint32),
        ("num_games", c_int32),
        ("num_threads", c_int32),
        ("max_actions", c_int32),
        ("event_history", c_int32),
        ("max_episode_steps", c_int32),
        ("first_state_id", c_uint64),
        ("first_episode_id", c_uint64),
    ]


class Outputs(ctypes.Structure):
    """`sdg_outputs`: pointers, as plain addresses."""

    _fields_ = [
        ("size", c_uint32),
        ("reserved", c_uint32),
        ("board", c_void_p),
        ("state", c_void_p),
        ("action_id", c_void_p),
        ("action_features", c_void_p),
        ("action_arg_mask", c_void_p),
        ("action_mask", c_void_p),
        ("legal_action_count", c_void_p),
        ("total_legal_action_count", c_void_p),
        ("action_truncated", c_void_p),
        ("event_features", c_void_p),
        ("event_sequence", c_void_p),
        ("event_action_sequence", c_void_p),
        ("event_mask", c_void_p),
        ("event_affected", c_void_p),
        ("event_affected_mask", c_void_p),
        ("reward", c_void_p),
        ("seat_reward", c_void_p),
        ("acting_seat", c_void_p),
        ("terminated", c_void_p),
        ("truncated", c_void_p),
        ("action_valid", c_void_p),
        ("env_id", c_void_p),
        ("state_id", c_void_p),
        ("episode_id", c_void_p),
        ("plies", c_void_p),
        ("seat", c_void_p),
        ("over", c_void_p),
        ("scores", c_void_p),
        ("final_board", c_void_p),
        ("final_state", c_void_p),
    ]


STAMP = (
    INTERFACE_VERSION << 48
    | ctypes.sizeof(Description) << 32
    | ctypes.sizeof(Settings) << 16
    | ctypes.sizeof(Outputs)
)
"""`SDG_STAMP`: version and struct sizes in one number."""

_BATCH = c_void_p
_ROWS = (c_void_p, c_int32)  # the rows' numbers or None for all, and how many
_OUTPUTS = c_void_p

SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "sdg_interface_stamp": (c_uint64, ()),
    "sdg_game_name": (c_char_p, (c_int32,)),
    "sdg_name": (c_char_p, (c_int32, c_int32, c_int32)),
    "sdg_option_range": (c_int32, (c_int32, c_int32, POINTER(c_int64))),
    "sdg_describe": (c_int32, (c_int32, POINTER(c_int64), POINTER(Description))),
    "sdg_create": (
        c_int32,
        (c_int32, POINTER(c_int64), POINTER(Settings), c_void_p, POINTER(_BATCH)),
    ),
    "sdg_free": (None, (_BATCH,)),
    "sdg_reset": (c_int32, (_BATCH, *_ROWS, c_void_p, c_void_p, _OUTPUTS)),
    "sdg_step": (c_int32, (_BATCH, *_ROWS, c_void_p, c_void_p, c_int32, _OUTPUTS)),
    "sdg_observe": (c_int32, (_BATCH, *_ROWS, _OUTPUTS)),
    "sdg_state_size": (c_int64, (_BATCH,)),
    "sdg_capture": (c_int32, (_BATCH, *_ROWS, c_void_p)),
    "sdg_restore": (c_int32, (_BATCH, *_ROWS, c_void_p)),
    "sdg_bot_moves": (
        c_int32,
        (_BATCH, c_int32, c_int32, c_int32, *_ROWS, c_void_p, c_void_p),
    ),
}
"""Result and arguments of every function; arrays are passed by address."""

OPTIONAL = frozenset({"sdg_option_range", "sdg_bot_moves"})
"""Functions that a library without options, or without bots, need not have."""
