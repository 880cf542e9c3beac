"""Trees of plain values as bytes."""

from __future__ import annotations

import math
import pickle
from collections import deque

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superdex.states._codec import Unencodable, decode, encode

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters())
    | st.binary()
)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.lists(inner).map(tuple)
        | st.lists(inner, max_size=4).map(lambda items: deque(items, 5))
    ),
    max_leaves=12,
)


@given(TREES)
def test_trees_come_back_with_their_types_and_bits(tree):
    """Whatever is nested in what; repr tells 1 from 1.0 and True, and tuples from lists."""
    back = decode(encode(tree))
    assert repr(back) == repr(tree)


def test_sets_come_back():
    """Equal sets are equal bytes, whatever was added first."""
    assert decode(encode({"a": {3, "x"}})) == {"a": {3, "x"}}
    assert type(decode(encode(frozenset((1, 2))))) is frozenset
    assert encode({8, 0, 16}) == encode({16, 8, 0})


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int16).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array([np.nan, -0.0, np.inf]),
        np.zeros((0, 3), np.float32),
        np.array(3.5),
        np.array(["a", "bcd"]),
        np.array([b"a", b"bcd"]),
        np.array([True, False]),
        np.array([1 + 2j]),
        np.array(["2026-01-01"], "datetime64[D]"),
        np.arange(4, dtype=">i4"),
        np.arange(10)[::3],
    ],
)
def test_arrays_come_back_to_the_bit(array):
    """With dtype, shape and order in memory, and writable."""
    back = decode(encode(array))
    assert back.dtype.str == array.dtype.str
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()
    assert back.flags.writeable
    if array.ndim == 2 and array.size:
        assert back.flags.f_contiguous == array.flags.f_contiguous


@pytest.mark.parametrize("scalar", [np.float64(0.1), np.float32(0.1), np.int8(-3), np.bool_(True)])
def test_scalars_of_numpy_stay_what_they_are(scalar):
    """A float64 of NumPy is no Python float."""
    back = decode(encode({"x": scalar}))["x"]
    assert type(back) is type(scalar)
    assert back.tobytes() == scalar.tobytes()


@pytest.mark.parametrize("name", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_generators_go_on_where_they_were(name):
    """Amid a draw of 32 bits, too."""
    generator = np.random.Generator(getattr(np.random, name)(7))
    generator.integers(0, 9, 3, np.int32)
    back = decode(encode(generator))
    assert back is not generator
    np.testing.assert_array_equal(back.normal(size=5), generator.normal(size=5))


def test_children_of_a_generator_are_the_same():
    """Those that it has spawned already are not spawned again."""
    generator = np.random.default_rng(3)
    generator.spawn(2)
    back = decode(encode(generator))
    for one, other in zip(back.spawn(2), generator.spawn(2), strict=True):
        assert one.normal() == other.normal()


def test_a_generator_held_twice_is_one_again():
    """What one holder draws, the other does not draw again."""
    generator = np.random.default_rng(0)
    back = decode(encode({"a": generator, "b": [generator], "c": np.random.default_rng(0)}))
    assert back["a"] is back["b"][0]
    assert back["a"] is not back["c"]


def test_arrays_that_share_memory_share_it_again():
    """What is written to one is seen in the others, whichever of them is the whole."""
    table = np.arange(12.0).reshape(4, 3)  # a view itself
    whole, row, turned, same = decode(encode([table, table[2], {"t": table[::-1].T}, table]))
    row[:] = 0
    expected = np.arange(12.0).reshape(4, 3)
    expected[2] = 0
    np.testing.assert_array_equal(whole, expected)
    np.testing.assert_array_equal(turned["t"], expected[::-1].T)
    np.testing.assert_array_equal(same, expected)


def test_views_that_do_not_overlap_take_no_more_than_they_show():
    """A row of a large table is no reason to keep the table."""
    table = np.zeros((1000, 3))
    back = decode(data := encode([table[0], table[1]]))
    assert len(data) < 200
    assert not np.shares_memory(*back)


def test_a_container_held_twice_is_one_again():
    """Lists, dicts, deques, and what holds them."""
    items, table, queue = [1], {"a": 2}, deque([3], 4)
    back = decode(encode({"a": items, "b": (items, [table, queue]), "c": table, "d": queue}))
    assert back["a"] is back["b"][0]
    assert back["c"] is back["b"][1][0]
    assert back["d"] is back["b"][1][1]
    assert decode(encode(back)) == back


def test_a_bytearray_can_still_be_changed():
    """It does not turn into bytes."""
    back = decode(encode([bytearray(b"ab")]))[0]
    assert type(back) is bytearray
    assert back == b"ab"


@pytest.mark.parametrize(
    "value",
    [
        object(),
        lambda: None,
        np.array([None], object),
        np.zeros(2, [("a", int)]),
        int,
        {"deep": [1, {"er": object()}]},
        memoryview(b"x"),
        {"deep": ([memoryview(b"x")],)},
    ],
)
def test_what_is_not_plain_is_refused(value):
    """Nothing is pickled in its place."""
    with pytest.raises(Unencodable):
        encode(value)


@pytest.mark.parametrize("tree", [[], deque()], ids=["list", "deque"])
def test_a_tree_that_holds_itself_is_refused(tree):
    """It has no end."""
    tree.append((tree,))
    with pytest.raises(Unencodable, match="holds itself"):
        encode(tree)


def test_integers_of_any_size_come_back():
    """A PCG64 has a state of 128 bits."""
    for number in (2**64, -(2**63) - 1, 2**127, -(2**200)):
        assert decode(encode(number)) == number


def test_nan_comes_back_with_its_bits():
    """Payloads included, in arrays."""
    array = np.array([0x7FF8000000000123], np.uint64).view(np.float64)
    assert decode(encode(array)).tobytes() == array.tobytes()
    assert math.isnan(decode(encode(math.nan)))


def beside(name: str, *path: str) -> bytes:
    """Return the bytes of a generator that is about to read beside its numbers."""
    state = getattr(np.random, name)(0).state
    holder = state
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = 10**6
    return bytes(msgpack.packb(msgpack.ExtType(9, encode([0, name, state, None]))))


class Bomb:
    def __reduce__(self):
        return exec, ("raise SystemExit('code was run')",)


def packed(code: int, content) -> bytes:
    return bytes(msgpack.packb(msgpack.ExtType(code, msgpack.packb(content))))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        pickle.dumps(Bomb()),
        packed(1, ["|O", [1], "C", b"\x00" * 8]),
        packed(1, ["<f8", [1 << 40], "C", b"\x00" * 8]),
        packed(1, ["<f8", [-1, -1], "C", b"\x00" * 8]),
        packed(1, ["i4,O", [1], "C", b"\x00" * 12]),
        packed(2, ["|O", b"\x00" * 8]),
        packed(9, [0, "default_rng", {}, None]),
        packed(9, [0, "PCG64", {}, [1, [], 1 << 30, 0]]),
        packed(9, [3, None, None, None]),
        beside("MT19937", "state", "pos"),
        beside("Philox", "buffer_pos"),
        packed(10, [3]),
        packed(11, [3, None, "<f8", [1], [8], 0]),
        packed(11, [0, b"1234567", "<f8", [1], [8], 0]),
        packed(11, [0, b"12345678", "<f8", [1 << 40], [0, 8], 0]),
        packed(11, [0, b"12345678", "<f8", [2], [8], -8]),
        packed(11, [0, b"12345678", "|O", [1], [8], 0]),
        packed(77, []),
        b"\xdd\xff\xff\xff\xff",
    ],
)
def test_bytes_that_are_no_tree_are_a_value_error(data):
    """None of them runs code, or takes the memory that it claims."""
    with pytest.raises(ValueError, match="no tree of plain values"):
        decode(data)
