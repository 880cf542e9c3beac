"""The built-in benchmark environments."""

__all__: list[str] = []
