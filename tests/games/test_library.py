"""Opening game libraries: what is asked from them, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from superdex.errors import GameLibraryError
from superdex.games import _interface as interface
from superdex.games import load
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
        ("  int32_t *plies; ", "  int32_t *extra;\n  int32_t *plies; ", "stamp"),
        ("sdg_observe", "sdg_look", "no function sdg_observe"),
    ],
)
def test_a_stale_library_is_refused(build, tmp_path, old, new, message):
    """Another version, other structs or a missing function are noticed at once."""
    stale = build.changed_corridor(tmp_path, old, new)
    with pytest.raises(GameLibraryError, match=message):
        load(stale)


NAMES = "  return kind == SDG_ACTION_FEATURE"
SIZES = "1, SDG_UINT8, 1, {kCells, 0, 0, 0}, 3, 2, 2, -1, 1, 1, 0, 0, 0, 0}"


def further_names(kind):
    """Return code that gives three names of a kind, where the corridor has none."""
    return f'  if (kind == {kind}) return i < 3 ? "abc" + i : nullptr;\n{NAMES}'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('game == 0 ? "corridor"', 'game == 9 ? "corridor"', "offers no game"),
        ("if (game != 0 || !about", "if (game == 0 || !about", "status 1"),
        (SIZES, SIZES.replace("SDG_UINT8", "7"), "board_dtype of corridor is 7"),
        (SIZES, SIZES.replace("SDG_UINT8, 1,", "SDG_UINT8, 5,"), "board_ndim of corridor is 5"),
        (SIZES, SIZES.replace("kCells", "0"), r"board_shape of corridor is \(0,\)"),
        (SIZES, SIZES.replace("1, SDG", "0, SDG"), "num_seats of corridor is 0"),
        (SIZES, SIZES.replace("3, 2,", "4, 2,"), "names 3 state fields of corridor"),
        (SIZES, SIZES.replace("2, 2,", "2, 3,"), "most_legal_actions of corridor is 3"),
        (SIZES, SIZES.replace("-1", "2"), "progress_action of corridor is 2"),
        (SIZES, SIZES.replace("1, 1, 0", "1, 2, 0"), "num_action_args of corridor is 2"),
        (NAMES, further_names("SDG_BOARD_CHANNEL"), "names 3 board channels"),
        (NAMES, further_names("SDG_ACTION"), "has 2 actions at most, and names more"),
        (NAMES, further_names("SDG_OPTION"), "no function sdg_option_range"),
        (NAMES, further_names("SDG_BOT"), "no function sdg_bot_moves"),
    ],
)
def test_a_library_that_contradicts_itself_is_refused(build, tmp_path, old, new, message):
    """No array is sized by a description that can't be; the error says what is wrong with it."""
    wrong = build.changed_corridor(tmp_path, old, new)
    with pytest.raises(GameLibraryError, match=message):
        load(wrong).create(1)


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
        {"num_threads": 1025},
        {"num_threads": 2.0},
        {"max_actions": 0},
        {"event_history": -1},
        {"event_history": True},
        {"max_episode_steps": 0},
        {"first_state_id": -1},
        {"first_state_id": 2**64},
        {"first_episode_id": 2**64 - 2**44 + 1},
        {"game": "chess"},
        {"seeds": [1]},
        {"seeds": [-1, 0]},
    ):
        with pytest.raises(ValueError, match=r"must|no game"):
            tron.create(2, **settings)
    for num_games in (0, 2.5, 2**32 + 1):
        with pytest.raises(ValueError, match="num_games"):
            tron.create(num_games)
