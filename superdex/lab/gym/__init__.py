"""Long import paths of the environments, the vector environment and the scene manager."""

__all__: list[str] = []
