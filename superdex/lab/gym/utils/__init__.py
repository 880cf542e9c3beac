"""Documented import path of the vector environment, which is in `vector`."""

__all__: list[str] = []
