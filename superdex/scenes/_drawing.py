"""Pictures of a MuJoCo scene, with an OpenGL context that needs no screen.

`mujoco.Renderer` takes whatever backend MuJoCo chose at import from `MUJOCO_GL`, which without that
variable is GLFW and fails on a machine without a display. Here the backend is chosen at the first
picture: EGL on Linux where neither `MUJOCO_GL` nor a display is set, else MuJoCo's own choice.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any, TypeAlias

import mujoco
import numpy as np
from numpy.typing import NDArray

from superdex.scenes._model_memory import is_as, place_of, taken

Camera: TypeAlias = "str | int | mujoco.MjvCamera"

_MAX_GEOMS = 2000
_UPLOADED = {
    "nhfield": (mujoco.mjr_uploadHField, ("hfield_data", "hfield_size")),
    "nmesh": (mujoco.mjr_uploadMesh, ("mesh_vert", "mesh_normal", "mesh_texcoord")),
}
"""What a drawing context has a copy of, and how it takes another."""


class Drawing:
    """Draws one model at one size; holds an OpenGL context until closed.

    Args:
        model: The model whose data is drawn.
        width: In pixels.
        height: In pixels.

    Raises:
        RuntimeError: No OpenGL context can be had.
    """

    def __init__(self, model: mujoco.MjModel, width: int, height: int) -> None:
        self._model = model
        self._rect = mujoco.MjrRect(0, 0, width, height)
        # MuJoCo sizes its off-screen buffer by the model: grow it before the context reads it.
        screen = model.vis.global_
        screen.offwidth = max(screen.offwidth, width)
        screen.offheight = max(screen.offheight, height)
        self._scene = mujoco.MjvScene(model, maxgeom=_MAX_GEOMS)
        self._option = mujoco.MjvOption()
        self._gl, self._context = _contexts(model, width, height)
        self._uploaded = {
            name: taken(place_of(getattr(model, name)))
            for _, names in _UPLOADED.values()
            for name in names
        }

    def draw(self, data: mujoco.MjData, camera: Camera) -> NDArray[np.uint8]:
        """Return the picture, (height, width, 3), owned by the caller.

        Raises:
            ValueError: There is no such camera.
        """
        view = self._view(camera)
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        # Infinite planes are laid out around the camera of the update before: the second update
        # makes the picture depend on the state alone, not on what was drawn last.
        for _ in range(2):
            mujoco.mjv_updateScene(
                self._model, data, self._option, None, view, everything, self._scene
            )
        picture = np.empty((self._rect.height, self._rect.width, 3), np.uint8)
        with self._gl.as_current():
            self._upload_changes()
            mujoco.mjr_render(self._rect, self._scene, self._context)
            mujoco.mjr_readPixels(picture, None, self._rect, self._context)
        # OpenGL's first row is the bottom one.
        return picture[::-1].copy()

    def close(self) -> None:
        """Free the OpenGL context; closing twice is fine."""
        if self._gl is None:
            return
        with self._gl.as_current():
            self._context.free()
        self._gl.free()
        self._gl = None

    def _upload_changes(self) -> None:
        """Give the context the height fields and meshes that are others than it has."""
        for count, (upload, names) in _UPLOADED.items():
            places = {name: place_of(getattr(self._model, name)) for name in names}
            if all(is_as(place[0], self._uploaded[name]) for name, place in places.items()):
                continue
            for index in range(getattr(self._model, count)):
                upload(self._model, self._context, index)
            self._uploaded |= {name: taken(place) for name, place in places.items()}

    def _view(self, camera: Camera) -> mujoco.MjvCamera:
        """Return the camera by name or number; -1 is a free one that sees the whole model."""
        if isinstance(camera, mujoco.MjvCamera):
            return camera
        number = camera
        if not isinstance(number, str | int | np.integer):
            raise TypeError(f"A camera must be a name, a number or an MjvCamera, got {camera!r}")
        if isinstance(number, str):
            number = mujoco.mj_name2id(self._model, mujoco.mjtObj.mjOBJ_CAMERA.value, number)
            if number < 0:
                number = self._model.ncam
        if not -1 <= number < self._model.ncam:
            names = [self._model.camera(i).name for i in range(self._model.ncam)]
            raise ValueError(f"The model has no camera {camera!r}; it has {names or 'none'}")
        view = mujoco.MjvCamera()
        if number < 0:
            mujoco.mjv_defaultFreeCamera(self._model, view)
        else:
            view.type = mujoco.mjtCamera.mjCAMERA_FIXED
            view.fixedcamid = number
        return view


def _contexts(model: mujoco.MjModel, width: int, height: int) -> tuple[Any, mujoco.MjrContext]:
    """Return an OpenGL context that draws off screen, and MuJoCo's drawing context in it.

    Raises:
        RuntimeError: There is none to be had; the message says what to install or to set.
    """
    chosen = os.environ.get("MUJOCO_GL", "")
    has_display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    headless = sys.platform.startswith("linux") and not chosen and not has_display
    try:
        with warnings.catch_warnings():
            # GLFW reports a missing display as a warning before it fails.
            warnings.simplefilter("ignore")
            if headless:
                from mujoco.egl import GLContext
            else:
                from mujoco import GLContext
            gl = GLContext(width, height)
        # It is current only while it is used, so that any thread may use it next.
        with gl.as_current():
            context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150.value)
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, context)
    # The backends fail in their own ways: ImportError without the library, AttributeError from
    # PyOpenGL's half-loaded platform, GLError or mujoco.FatalError without a device.
    except Exception as error:
        backend = "egl, chosen because there is no display," if headless else repr(chosen)
        raise RuntimeError(
            f"No OpenGL context for rendering: backend {backend} failed with "
            f"{type(error).__name__}: {error}. On Linux without a screen install EGL "
            "(Debian and Ubuntu: apt-get install libegl1) and set MUJOCO_GL=egl, or install "
            "OSMesa (libosmesa6) and set MUJOCO_GL=osmesa."
        ) from error
    return gl, context
