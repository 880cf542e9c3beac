"""Trees of plain values ↔ bytes, never by pickle.

A tree is made of None, bools, numbers, strings, bytes, lists, tuples, dicts, sets, deques, NumPy
arrays and scalars, and random generators. What comes back has the same types and the same bits, and
what was one object, or a view of another's memory, is so again. The bytes are msgpack; what msgpack
does not know travels as one of its extension types. Reading runs no code of the bytes' choosing: an
array's dtype is one of NumPy's own, and a generator's class one of NumPy's bit generators.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import msgpack
import numpy as np

from superdex.states._sharing import bounds_of, memory_of, sharing_in

__all__ = ["Unencodable", "decode", "encode"]

_ARRAY, _SCALAR, _INTEGER, _TUPLE, _DEQUE, _SET, _FROZENSET, _COMPLEX, _GENERATOR = range(1, 10)
_HELD, _VIEW, _BYTEARRAY = range(10, 13)

_KINDS = "biufcSUMm"
"""The kinds of dtypes that hold plain values and nothing else."""

_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")

_LARGEST_POOL = 64
"""NumPy's seed sequences have a pool of 4 words, unless somebody asks for more."""


class Unencodable(TypeError):
    """A value is not plain."""


def encode(tree: Any) -> bytes:
    """Return a tree as bytes.

    Raises:
        Unencodable: If it holds something else than plain values, or is nested too deeply.
    """
    return _Encoder(tree).encode(tree)


def decode(data: bytes) -> Any:
    """Return the tree that `encode` made these bytes of, all of it new.

    Raises:
        ValueError: If they are not its bytes.
    """
    try:
        return _Decoder().decode(data)
    except Exception as error:
        raise ValueError(f"The bytes hold no tree of plain values: {error}") from error


@dataclass(frozen=True, eq=False)
class _Held:
    """Stands for an object that is held in several places."""

    value: Any


class _Encoder:
    """Encodes one tree; what is one object in it is one object again."""

    def __init__(self, tree: Any) -> None:
        self._sharing = sharing_in(tree)
        self._numbers: dict[int, int] = {}
        self._open: set[int] = set()

    def encode(self, tree: Any) -> bytes:
        try:
            return self._pack(self._marked(tree))
        except Unencodable:
            raise
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise Unencodable(str(error)) from error

    def _pack(self, tree: Any) -> bytes:
        return bytes(
            msgpack.packb(
                tree, default=self._extend, strict_types=True, unicode_errors="surrogatepass"
            )
        )

    def _marked(self, tree: Any, *, inside: bool = False) -> Any:
        """Return a tree with marks where msgpack must not go on by itself.

        Args:
            tree: What is to be packed.
            inside: It is left unmarked itself.
        """
        kind = type(tree)
        if kind is memoryview:  # msgpack would make bytes of it
            raise Unencodable("a memoryview is no plain value")
        if kind is bytearray or (not inside and id(tree) in self._sharing.twice):
            return _Held(tree)
        if kind is list:
            return [self._marked(item) for item in tree]
        if kind is dict:
            return {key: self._marked(value) for key, value in tree.items()}
        return tree

    def _held(self, value: Any) -> msgpack.ExtType:
        if type(value) is bytearray:
            return msgpack.ExtType(_BYTEARRAY, bytes(value))
        known = id(value) in self._numbers
        number = self._numbers.setdefault(id(value), len(self._numbers))
        if known:
            if number in self._open:
                raise Unencodable(f"a {type(value).__name__} holds itself")
            return msgpack.ExtType(_HELD, self._pack([number]))
        self._open.add(number)
        content = self._pack([number, self._marked(value, inside=True)])
        self._open.remove(number)
        return msgpack.ExtType(_HELD, content)

    def _extend(self, value: Any) -> msgpack.ExtType:
        kind = type(value)
        if kind is _Held:
            return self._held(value.value)
        if kind is np.ndarray:
            if id(value) in self._sharing.roots:
                return msgpack.ExtType(_VIEW, self._view(value))
            return msgpack.ExtType(_ARRAY, self._array(value))
        if isinstance(value, np.generic):
            _check_dtype(value.dtype)
            return msgpack.ExtType(_SCALAR, self.encode([value.dtype.str, value.tobytes()]))
        if kind is int:  # of more than 64 bits
            size = value.bit_length() // 8 + 1
            return msgpack.ExtType(_INTEGER, value.to_bytes(size, "little", signed=True))
        if kind is tuple:
            return msgpack.ExtType(_TUPLE, self.encode(list(value)))
        if kind is deque:
            return msgpack.ExtType(_DEQUE, self.encode([value.maxlen, list(value)]))
        if kind is set or kind is frozenset:
            # sorted, so that equal sets are equal bytes
            items = sorted(value, key=lambda item: encode(item))
            return msgpack.ExtType(_SET if kind is set else _FROZENSET, self.encode(items))
        if kind is complex:
            return msgpack.ExtType(_COMPLEX, self.encode([value.real, value.imag]))
        if kind is np.random.Generator:
            return msgpack.ExtType(_GENERATOR, self._generator(value))
        raise Unencodable(f"a {kind.__module__}.{kind.__qualname__} is no plain value")

    def _array(self, array: np.ndarray) -> bytes:
        _check_dtype(array.dtype)
        # results of sums may depend on the order in memory, so it is kept
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        return self.encode([array.dtype.str, list(array.shape), order, array.tobytes(order)])  # type: ignore[arg-type]  # NumPy's stubs want a literal

    def _view(self, array: np.ndarray) -> bytes:
        """Encode an array that shares its memory, which goes with the first of them."""
        _check_dtype(array.dtype)
        root = self._sharing.roots[id(array)]
        known = id(root) in self._numbers
        number = self._numbers.setdefault(id(root), len(self._numbers))
        offset = array.__array_interface__["data"][0] - bounds_of(root)[0]
        where = [array.dtype.str, list(array.shape), list(array.strides), offset]
        return self.encode([number, None if known else memory_of(root), *where])

    def _generator(self, generator: np.random.Generator) -> bytes:
        known = id(generator) in self._numbers
        number = self._numbers.setdefault(id(generator), len(self._numbers))
        if known:
            return self.encode([number, None, None, None])
        name = type(generator.bit_generator).__name__
        if name not in _BIT_GENERATORS:
            raise Unencodable(f"the bit generator {name} is none of {', '.join(_BIT_GENERATORS)}")
        seeds = _seeds_of(generator.bit_generator)
        return self.encode([number, name, generator.bit_generator.state, seeds])


class _Decoder:
    """Decodes one tree."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}
        self._readers: dict[int, Callable[..., Any]] = {
            _ARRAY: self._array,
            _SCALAR: self._scalar,
            _TUPLE: lambda *items: items,
            _DEQUE: lambda maxlen, items: deque(items, maxlen),
            _SET: lambda *items: set(items),
            _FROZENSET: lambda *items: frozenset(items),
            _COMPLEX: complex,
            _GENERATOR: self._generator,
            _HELD: self._held,
            _VIEW: self._view,
        }

    def decode(self, data: bytes) -> Any:
        return msgpack.unpackb(
            data,
            ext_hook=self._extended,
            strict_map_key=False,
            unicode_errors="surrogatepass",
        )

    def _extended(self, code: int, data: bytes) -> Any:
        if code == _INTEGER:
            return int.from_bytes(data, "little", signed=True)
        if code == _BYTEARRAY:
            return bytearray(data)
        read = self._readers.get(code)
        if read is None:
            raise ValueError(f"unknown extension type {code}")
        return read(*self.decode(data))

    @staticmethod
    def _scalar(name: str, raw: bytes) -> Any:
        return np.frombuffer(raw, _dtype(name), 1)[0]

    @staticmethod
    def _array(name: str, shape: list[int], order: str, raw: bytes) -> np.ndarray:
        dtype = _dtype(name)
        if any(size < 0 for size in shape) or prod(shape) * dtype.itemsize != len(raw):
            raise ValueError(f"{len(raw)} bytes are no array of shape {tuple(shape)} and {dtype}")
        array: np.ndarray = np.empty(shape, dtype, order)  # type: ignore[call-overload]  # as above
        flat = np.frombuffer(raw, dtype, prod(shape)) if raw else np.empty(0, dtype)
        array[...] = flat.reshape(shape, order=order)  # type: ignore[call-overload]  # as above
        return array

    def _held(self, number: int, *content: Any) -> Any:
        if content:
            (self._objects[number],) = content
        return self._objects[number]

    def _view(
        self,
        number: int,
        memory: bytes | None,
        name: str,
        shape: list[int],
        strides: list[int],
        offset: int,
    ) -> np.ndarray:
        if memory is not None:
            self._objects[number] = np.frombuffer(memory, np.uint8).copy()
        # NumPy checks that all of the view lies in the memory
        return np.ndarray(shape, _dtype(name), self._objects[number], offset, strides)

    def _generator(
        self, number: int, name: str | None, state: dict[str, Any] | None, seeds: Any
    ) -> np.random.Generator:
        if name is not None:
            if name not in _BIT_GENERATORS:
                raise ValueError(f"{name!r} is no bit generator")
            bit_generator = getattr(np.random, name)(_seed_sequence(seeds))
            bit_generator.state = state
            _check_positions(bit_generator.state)
            self._objects[number] = np.random.Generator(bit_generator)
        generator = self._objects[number]
        if not isinstance(generator, np.random.Generator):
            raise ValueError(f"object {number} is no generator")
        return generator


def _check_positions(state: Mapping[str, Any]) -> None:
    """Raise `ValueError` where a generator would read beside its own numbers, as NumPy lets it."""
    if state["bit_generator"] == "MT19937":
        position, last = state["state"]["pos"], len(state["state"]["key"])
    elif state["bit_generator"] == "Philox":
        position, last = state["buffer_pos"], len(state["buffer"])
    else:
        return
    if not 0 <= position <= last:
        raise ValueError(f"{position} is no position in {last} numbers")


def _seeds_of(bit_generator: np.random.BitGenerator) -> Any:
    """Return what `spawn` of a generator makes its children from; None where it can't."""
    seeds = bit_generator.seed_seq
    if type(seeds) is not np.random.SeedSequence:
        return None
    return [seeds.entropy, seeds.spawn_key, seeds.pool_size, seeds.n_children_spawned]


def _seed_sequence(seeds: Any) -> np.random.SeedSequence:
    if seeds is None:
        return np.random.SeedSequence(0)
    entropy, spawn_key, pool_size, spawned = seeds
    if not 4 <= pool_size <= _LARGEST_POOL:
        raise ValueError(f"{pool_size} is no size of a pool of entropy")
    return np.random.SeedSequence(
        entropy, spawn_key=spawn_key, pool_size=pool_size, n_children_spawned=spawned
    )


def _check_dtype(dtype: np.dtype) -> None:
    if dtype.kind not in _KINDS:
        raise Unencodable(f"an array of {dtype} holds no plain values")


def _dtype(name: str) -> np.dtype:
    dtype = np.dtype(name)
    if dtype.kind not in _KINDS or dtype.str != name:
        raise ValueError(f"{name!r} is no dtype of plain values")
    return dtype
