"""Opening game libraries: what is asked from them, and what is refused."""

from __future__ import annotations

import re
import subprocess

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
        ("#define SDG_INTERFACE_VERSION 2", "#define SDG_INTERFACE_VERSION 3", "version 3"),
        ("  int32_t *plies; ", "  int32_t *extra;\n  int32_t *plies; ", "stamp"),
        ("sdg_observe", "sdg_look", "no function sdg_observe"),
    ],
)
def test_a_stale_library_is_refused(tmp_path, old, new, message):
    """Another version, other structs or a missing function are noticed at once."""
    header = (CPP / "include" / "superdex_game.h").read_text()
    example = (CPP / "examples" / "corridor.cpp").read_text()
    assert old in header
    (tmp_path / "superdex_game.h").write_text(header.replace(old, new))
    (tmp_path / "corridor.cpp").write_text(example.replace(old, new))
    made = tmp_path / "stale.so"
    command = ["g++", "-std=c++20", "-shared", "-fPIC", f"-I{tmp_path}", tmp_path / "corridor.cpp"]
    subprocess.run([*command, "-o", made], check=True, timeout=60)
    with pytest.raises(GameLibraryError, match=message):
        load(made)


def test_constants_are_those_of_the_header():
    """Every number and struct field that Python repeats is the header's."""
    header = (CPP / "include" / "superdex_game.h").read_text()
    numbers = dict(re.findall(r"SDG_([A-Z0-9_]+) = (\d+)", header))
    for name, value in {**vars(interface.Status), **vars(interface.Kind)}.items():
        if name.isupper():
            assert int(numbers[name]) == value, name
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
        ({"width": 9.5}, "whole number"),
        ({"width": True}, "whole number"),
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
        {"max_actions": 0},
        {"event_history": -1},
        {"game": "chess"},
        {"seeds": [1]},
        {"seeds": [-1, 0]},
    ):
        with pytest.raises(ValueError, match=r"must|no game"):
            tron.create(2, **settings)
    with pytest.raises(ValueError, match="num_games"):
        tron.create(0)
