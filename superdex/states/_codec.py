"""Trees of plain values ↔ bytes, never by pickle.

A tree is made of None, bools, numbers, strings, bytes, lists, tuples, dicts, sets, deques, NumPy
arrays and scalars, and random generators. What comes back has the same types and the same bits. The
bytes are msgpack; what msgpack does not know travels as one of its extension types. Reading runs no
code of the bytes' choosing: an array's dtype is one of NumPy's own, and a generator's class one of
NumPy's bit generators.
"""

from __future__ import annotations

from collections import deque
from math import prod
from typing import Any

import msgpack
import numpy as np

__all__ = ["Unencodable", "decode", "encode"]

_ARRAY, _SCALAR, _INTEGER, _TUPLE, _DEQUE, _SET, _FROZENSET, _COMPLEX, _GENERATOR = range(1, 10)

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
    try:
        _check_bytes(tree)
    except RecursionError as error:
        raise Unencodable(str(error)) from error
    return _Encoder().encode(tree)


def _check_bytes(tree: Any) -> None:
    """Raise `Unencodable` for bytes that may change, which msgpack would make bytes of."""
    kind = type(tree)
    if kind is bytearray or kind is memoryview:
        raise Unencodable(f"a {kind.__name__} is no plain value")
    if kind is dict:
        tree = tree.values()
    elif kind is not list and kind is not tuple and kind is not deque:
        return
    for item in tree:
        _check_bytes(item)


def decode(data: bytes) -> Any:
    """Return the tree that `encode` made these bytes of, all of it new.

    Raises:
        ValueError: If they are not its bytes.
    """
    try:
        return _Decoder().decode(data)
    except Exception as error:
        raise ValueError(f"The bytes hold no tree of plain values: {error}") from error


class _Encoder:
    """Encodes one tree; generators that are one object in it are one object again."""

    def __init__(self) -> None:
        self._generators: dict[int, int] = {}

    def encode(self, tree: Any) -> bytes:
        try:
            return bytes(
                msgpack.packb(
                    tree, default=self._extend, strict_types=True, unicode_errors="surrogatepass"
                )
            )
        except Unencodable:
            raise
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise Unencodable(str(error)) from error

    def _extend(self, value: Any) -> msgpack.ExtType:
        kind = type(value)
        if kind is np.ndarray:
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

    def _generator(self, generator: np.random.Generator) -> bytes:
        number = self._generators.get(id(generator))
        if number is not None:
            return self.encode([number, None, None, None])
        name = type(generator.bit_generator).__name__
        if name not in _BIT_GENERATORS:
            raise Unencodable(f"the bit generator {name} is none of {', '.join(_BIT_GENERATORS)}")
        number = self._generators[id(generator)] = len(self._generators)
        seeds = _seeds_of(generator.bit_generator)
        return self.encode([number, name, generator.bit_generator.state, seeds])


class _Decoder:
    """Decodes one tree."""

    def __init__(self) -> None:
        self._generators: list[np.random.Generator] = []

    def decode(self, data: bytes) -> Any:
        return msgpack.unpackb(
            data,
            ext_hook=self._extended,
            strict_map_key=False,
            unicode_errors="surrogatepass",
        )

    def _extended(self, code: int, data: bytes) -> Any:
        if code == _ARRAY:
            return self._array(*self.decode(data))
        if code == _SCALAR:
            name, raw = self.decode(data)
            return np.frombuffer(raw, _dtype(name), 1)[0]
        if code == _INTEGER:
            return int.from_bytes(data, "little", signed=True)
        if code == _TUPLE:
            return tuple(self.decode(data))
        if code == _DEQUE:
            maxlen, items = self.decode(data)
            return deque(items, maxlen)
        if code == _SET:
            return set(self.decode(data))
        if code == _FROZENSET:
            return frozenset(self.decode(data))
        if code == _COMPLEX:
            return complex(*self.decode(data))
        if code == _GENERATOR:
            return self._generator(*self.decode(data))
        raise ValueError(f"unknown extension type {code}")

    @staticmethod
    def _array(name: str, shape: list[int], order: str, raw: bytes) -> np.ndarray:
        dtype = _dtype(name)
        if any(size < 0 for size in shape) or prod(shape) * dtype.itemsize != len(raw):
            raise ValueError(f"{len(raw)} bytes are no array of shape {tuple(shape)} and {dtype}")
        array: np.ndarray = np.empty(shape, dtype, order)  # type: ignore[call-overload]  # as above
        flat = np.frombuffer(raw, dtype, prod(shape)) if raw else np.empty(0, dtype)
        array[...] = flat.reshape(shape, order=order)  # type: ignore[call-overload]  # as above
        return array

    def _generator(
        self, number: int, name: str | None, state: dict[str, Any] | None, seeds: Any
    ) -> np.random.Generator:
        if name is not None:
            if name not in _BIT_GENERATORS or number != len(self._generators):
                raise ValueError(f"{name!r} is no bit generator")
            bit_generator = getattr(np.random, name)(_seed_sequence(seeds))
            bit_generator.state = state
            self._generators.append(np.random.Generator(bit_generator))
        return self._generators[number]


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
