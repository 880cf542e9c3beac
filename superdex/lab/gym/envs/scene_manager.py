"""Scenes by name, shared by the environments of one class and process."""

from superdex.scenes import SceneData, SceneManager

__all__ = ["SceneData", "SceneManager"]
