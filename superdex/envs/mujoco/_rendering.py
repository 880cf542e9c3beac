"""Pictures of Gymnasium's MuJoCo environments, by Gymnasium's own renderer."""

from __future__ import annotations

from typing import Any

import mujoco

__all__ = ["Rendering"]


class Rendering:
    """How an environment is drawn; nothing is loaded or opened until it is.

    Args:
        default_camera_config: Attributes of the free camera and their values.
        width: In pixels.
        height: In pixels.
        max_geom: The most geometries that are drawn.
        camera_id: Of the model; None for the free camera or the one named.
        camera_name: Of the model.
        visual_options: Flags of `MjvOption` and whether they are set.
    """

    def __init__(
        self,
        default_camera_config: dict[str, Any] | None = None,
        width: int = 480,
        height: int = 480,
        max_geom: int = 1000,
        camera_id: int | None = None,
        camera_name: str | None = None,
        visual_options: dict[int, bool] | None = None,
    ) -> None:
        self.size = (width, height)
        self._arguments = (
            default_camera_config,
            width,
            height,
            max_geom,
            camera_id,
            camera_name,
            visual_options,
        )
        self._renderer: Any = None

    def draw(self, model: mujoco.MjModel, data: mujoco.MjData, mode: str) -> Any:
        """Return what `MujocoRenderer.render` returns in that mode: pictures, or None for "human".

        Raises:
            ImportError: A package that Gymnasium draws with is missing.
        """
        if self._renderer is None:
            try:
                from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer
            except ImportError as error:
                error.add_note("Install what Gymnasium draws with: pip install 'gymnasium[mujoco]'")
                raise
            self._renderer = MujocoRenderer(model, data, *self._arguments)
        return self._renderer.render(mode)

    def close(self) -> None:
        """Close windows and contexts; closing twice is fine."""
        renderer, self._renderer = self._renderer, None
        if renderer is not None:
            renderer.close()
