"""The documented long import paths; each module here re-exports from where the code lives."""

__all__: list[str] = []
