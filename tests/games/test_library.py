"""Opening game libraries: what is asked from them, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from superdex.errors import GameLibraryError
from superdex.games import _interface as interface
from superdex.games import load
from superdex.games._description import describe
from tests.games.engines import CPP


def test_everything_about_a_game_is_asked_from_its_library(tron):
    """Sizes and names follow the options."""
    description = tron.describe("tron", {"width": 11, "height": 7})
    assert description.board_shape == (8, 7, 11)
    assert description.board_dtype == np.uint8
    assert len(description.board_channels) == 8
    assert description.action_args == ("direction", "cell")
    assert description.bots == ("random", "flood_fill", "voronoi", "alpha_beta")
    assert description.most_plies == 76
    assert tron.options()["vision_radius"] == (0, 0, 64)


def test_a_file_that_is_no_library_is_refused(tmp_path):
    """The error names the file."""
    path = tmp_path / "engine.so"
    path.write_text("no library")
    with pytest.raises(GameLibraryError, match="could not be opened"):
        load(path)
    with pytest.raises(GameLibraryError, match="could not be opened"):
        load(tmp_path / "missing.so")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("#define SDG_INTERFACE_VERSION 1", "#define SDG_INTERFACE_VERSION 2", "version 2"),
        ("  int32_t *plies; ", "  int32_t *extra;\n  int32_t *plies; ", "and 256 bytes; expected"),
        ("sdg_observe", "sdg_look", "no function sdg_observe.*interface.cpp"),
    ],
)
def test_a_stale_library_is_refused(build, tmp_path, old, new, message):
    """Another version, other structs or a missing function are noticed at once."""
    stale = build.changed_corridor(tmp_path, old, new)
    with pytest.raises(GameLibraryError, match=message):
        load(stale)


FIELD = 'return kind == SDG_ACTION_FEATURE && i < 1 ? "direction" :'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('game == 0 ? "corridor" : nullptr', '"corridor"', "names more"),
        ('game == 0 ? "corridor" : nullptr', 'game < 2 ? "twin" : nullptr', "of the same name"),
        ('game == 0 ? "corridor" : nullptr', 'game == 0 ? "\\xff" : nullptr', "no UTF-8"),
        ('game == 0 ? "corridor" : nullptr', "nullptr", "offers no game"),
        (FIELD, f'if (kind == SDG_OPTION && i < 1) return "size"; {FIELD}', "sdg_option_range"),
        (FIELD, f'if (kind == SDG_BOT && i < 1) return "bot"; {FIELD}', "sdg_bot_moves"),
        ("i < 3 ? kFields[i]", "i < 2 ? kFields[i]", "2 state fields of corridor and describes 3"),
        ("i < 3 ? kFields[i]", "i < 9 ? kFields[0]", "3 state fields at most, and names more"),
        ("sizeof(Game); }", "sizeof(Game) - 1; }", "states of 55 bytes"),
        ("*batch = new sdg_batch{", "return SDG_OK; new sdg_batch{", "made no batch"),
    ],
)
def test_a_library_that_contradicts_itself_is_refused(build, tmp_path, old, new, message):
    """Names without end, odd names, missing functions and wrong sizes are errors of the library."""
    made = build.changed_corridor(tmp_path, old, new)
    with pytest.raises(GameLibraryError, match=message):
        load(made).create(2).capture()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_seats", 0),
        ("board_dtype", 2),
        ("board_ndim", 0),
        ("board_ndim", -1),
        ("board_ndim", 5),
        ("board_shape", (0, 3, 0, 0)),
        ("board_shape", (2**30, 2, 0, 0)),
        ("num_actions", 0),
        ("most_legal_actions", 0),
        ("most_legal_actions", 4),
        ("progress_action", -2),
        ("progress_action", 3),
        ("num_action_args", -1),
        ("num_action_args", 3),
        ("num_affected", -1),
        ("most_plies", -1),
        ("num_state_fields", -1),
        ("num_event_features", 1),
    ],
)
def test_impossible_sizes_are_refused(field, value):
    """A library that would write other arrays than it describes never gets to write."""
    names = {interface.Kind.STATE_FIELD: [b"x"], interface.Kind.ACTION_FEATURE: [b"a", b"b"]}

    def name_at(kind, index):
        return dict(enumerate(names.get(kind, []))).get(index)

    about = interface.Description(
        num_seats=1, board_ndim=2, board_shape=(2, 3, 0, 0), num_state_fields=1, num_actions=3,
        most_legal_actions=3, progress_action=2, num_action_features=2, num_action_args=2,
    )  # fmt: skip
    assert describe("engine.so", "game", {}, about, (), name_at).board_shape == (2, 3)
    setattr(about, field, value)
    with pytest.raises(GameLibraryError, match=r"engine\.so"):
        describe("engine.so", "game", {}, about, (), name_at)


def test_a_library_that_is_cut_short_is_refused(tron, tmp_path):
    """Opened, it would end the process; whatever the length, it is refused or whole enough."""
    whole = tron.path.read_bytes()
    path = tmp_path / "engine.so"
    for length in (0, 63, 64, 1000, len(whole) // 4, len(whole) // 2):
        path.write_bytes(whole[:length])
        with pytest.raises(GameLibraryError, match=r"cut short|could not be opened"):
            load(path)
    path.write_bytes(whole[:-8])  # the end of a table that nothing is loaded from
    assert load(path).games == ("tron",)


def test_constants_are_those_of_the_header():
    """Every number and struct field that Python repeats is the header's."""
    header = (CPP / "include" / "superdex_game.h").read_text()
    numbers = dict(re.findall(r"SDG_([A-Z0-9_]+) = (\d+)", header))
    for name, value in {**vars(interface.Status), **vars(interface.Kind)}.items():
        if name.isupper():
            assert int(numbers[name]) == value, name
    assert f"#define SDG_INTERFACE_VERSION {interface.INTERFACE_VERSION}\n" in header
    assert f"#define SDG_MOST_THREADS {interface.MOST_THREADS}\n" in header
    assert int(numbers["AUTO_RESET"]) == interface.AUTO_RESET
    assert int(numbers["KEEP_ILLEGAL"]) == interface.KEEP_ILLEGAL
    for struct, name in (
        (interface.Description, "sdg_description"),
        (interface.Settings, "sdg_settings"),
        (interface.Outputs, "sdg_outputs"),
    ):
        body = re.search(rf"typedef struct {name} \{{(.*?)\}} {name};", header, re.DOTALL)
        assert body
        fields = re.findall(r"^\s*\w+ \*?(\w+)(?:\[\d\])?;", body[1], re.MULTILINE)
        assert fields == [field[0] for field in struct._fields_]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"widht": 9}, "Did you mean 'width'"),
        ({"width": 3}, "from 4 to 64, got 3"),
        ({"width": 65}, "from 4 to 64"),
        ({"width": 9.0}, "must be an integer"),
        ({"width": True}, "must be an integer"),
        ({"width": "nine"}, "must be an integer"),
        ({"width": None}, "must be an integer"),
        ({"width": 2**64 + 9}, "from 4 to 64"),
        ({"width": float("nan")}, "must be an integer"),
    ],
)
def test_bad_options_are_refused(tron, options, message):
    """The error says what is allowed."""
    with pytest.raises(ValueError, match=message):
        tron.create(1, options=options)


def test_bad_settings_are_refused(tron):
    """Counts below their least, unknown games and seeds of another number are errors."""
    for settings in (
        {"num_threads": 0},
        {"num_threads": interface.MOST_THREADS + 1},
        {"num_threads": True},
        {"num_threads": 2.0},
        {"max_actions": 0},
        {"event_history": -1},
        {"event_history": True},
        {"max_episode_steps": 0},
        {"first_state_id": -1},
        {"first_state_id": 2**64},
        {"first_episode_id": 2**64 - 2**44 + 1},
        {"game": "chess"},
        {"game": 0},
        {"seeds": [1]},
        {"seeds": [-1, 0]},
    ):
        with pytest.raises(ValueError, match=r"must|no game"):
            tron.create(2, **settings)
    for num_games in (0, 2.5, 2**32 + 1):
        with pytest.raises(ValueError, match="num_games"):
            tron.create(num_games)
