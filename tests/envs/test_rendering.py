"""Pictures: of the asking environment's own state, and clear errors where none can be had."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from superdex.envs import AntEnv, CartPoleEnv, HalfCheetahEnv
from superdex.scenes import MujocoScene

SMALL = {"render_mode": "rgb_array", "render_size": (160, 120)}


def can_draw() -> bool:
    scene = MujocoScene.from_xml_string("<mujoco/>")
    try:
        scene.render(width=16, height=16)
    except RuntimeError:
        return False
    finally:
        scene.close()
    return True


needs_gl = pytest.mark.skipif(not can_draw(), reason="this machine offers no OpenGL context")


@needs_gl
@pytest.mark.parametrize("env_class", [CartPoleEnv, HalfCheetahEnv, AntEnv])
def test_a_picture_shows_the_scene(env_class):
    """It has the size asked for, and more than one colour."""
    with env_class(SMALL) as env:
        env.reset(seed=0)
        picture = env.render()
    assert picture.shape == (120, 160, 3)
    assert picture.dtype == np.uint8
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 100


@needs_gl
@pytest.mark.parametrize("env_class", [CartPoleEnv, HalfCheetahEnv, AntEnv])
def test_each_draws_its_own_state(env_class):
    """On one scene, with siblings stepped and drawn in between, as on a scene of its own."""
    rng = np.random.default_rng(0)
    shared = [env_class(SMALL) for _ in range(2)]
    alone = [env_class(SMALL, use_shared_scenes=False) for _ in range(2)]
    for envs in (shared, alone):
        for seed, env in enumerate(envs):
            env.reset(seed=seed)
    for _ in range(3):
        for one, other in zip(shared, alone, strict=True):
            for _ in range(1 + (one is shared[0])):
                action = rng.uniform(-1, 1, one.action_space.shape).astype(np.float32)
                one.step(action)
                other.step(action)
        pictures = [env.render() for env in shared]
        for picture, env in zip(pictures, alone, strict=True):
            assert np.array_equal(picture, env.render())
        assert not np.array_equal(*pictures)
    for env in (*shared, *alone):
        env.close()


@needs_gl
def test_drawing_leaves_no_trace():
    """An environment that is drawn at each step goes the same way."""
    with AntEnv(SMALL) as drawn, AntEnv(SMALL) as plain:
        drawn.reset(seed=0)
        plain.reset(seed=0)
        rng = np.random.default_rng(0)
        for _ in range(20):
            action = rng.uniform(-1, 1, 8).astype(np.float32)
            got, expected = drawn.step(action), plain.step(action)
            assert np.array_equal(got[0], expected[0])
            assert got[1:] == expected[1:]
            drawn.render()


@needs_gl
def test_environments_of_a_scene_share_one_renderer():
    """It is made at the first picture, and goes with the scene."""
    first, second = CartPoleEnv(SMALL), CartPoleEnv(SMALL)
    scene = first._scene
    assert len(scene._drawings) == 0
    first.render()
    second.render()
    assert len(scene._drawings) == 1
    first.close()
    second.close()
    assert len(scene._drawings) == 0


@needs_gl
def test_any_thread_may_draw():
    """The OpenGL context is bound only while it is used."""
    with CartPoleEnv(SMALL) as env:
        env.reset(seed=0)
        pictures = [env.render()]
        thread = threading.Thread(target=lambda: pictures.append(env.render()))
        thread.start()
        thread.join()
        assert np.array_equal(*pictures)


@needs_gl
def test_an_unknown_camera_is_named():
    """The message lists the cameras that there are."""
    with CartPoleEnv(SMALL) as env, pytest.raises(ValueError, match=r"'top'; it has \['track'\]"):
        env._scene.render("top")


def test_without_a_render_mode_there_is_a_warning_and_no_picture():
    """As in Gymnasium's own environments."""
    with CartPoleEnv() as env:
        env.reset(seed=0)
        with pytest.warns(UserWarning, match='render_mode="rgb_array"'):
            assert env.render() is None


DRAW = """
from superdex.envs import CartPoleEnv
env = CartPoleEnv(render_mode="rgb_array")
env.reset(seed=0)
try:
    print(env.render().shape)
except RuntimeError as error:
    print(error)
"""


def drawn_by(**variables):
    """Return what a fresh process prints that draws under these environment variables."""
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY", "PYOPENGL_PLATFORM")
    }
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    return subprocess.run(
        [sys.executable, "-c", DRAW],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout


@needs_gl
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="EGL is Linux's")
def test_without_display_and_variable_egl_is_used():
    """Nothing has to be set on a headless machine."""
    assert drawn_by() == "(480, 640, 3)\n"


def test_without_opengl_the_error_says_what_to_install():
    """It names the package and the variable."""
    message = drawn_by(MUJOCO_GL="off")
    assert "No OpenGL context for rendering" in message
    assert "apt-get install libegl1" in message
    assert "MUJOCO_GL=egl" in message


@needs_gl
def test_a_picture_depends_on_the_state_alone():
    """Also far from where a sibling was drawn last: the endless floor follows the camera."""
    with AntEnv(SMALL) as env, AntEnv(SMALL) as far_away:
        env.reset(seed=0)
        far_away.reset(seed=1)
        with far_away.own_state():
            far_away._scene.data.qpos[0] = 37.3
        first = env.render()
        far_away.render()
        assert np.array_equal(env.render(), first)


@needs_gl
def test_a_picture_shows_the_terrain_that_was_drawn():
    """MuJoCo's drawing context has a copy of it, which is renewed."""
    xml = """<mujoco><asset><hfield name="t" nrow="8" ncol="8" size="1 1 .5 .1"/></asset><worldbody>
    <light pos="0 0 3"/><geom type="hfield" hfield="t"/><body pos="0 0 2"><freejoint/>
    <geom size=".1"/></body></worldbody></mujoco>"""
    terrains = [np.random.default_rng(seed).uniform(0, 1, 64) for seed in range(2)]
    scene = MujocoScene.from_xml_string(xml)
    varied = [scene.vary(["hfield_data"], {"hfield_data": terrain}) for terrain in terrains]
    pictures = []
    for variation in (*varied, *varied):
        scene.apply_variation(variation)
        scene.refresh()
        pictures.append(scene.render(width=64, height=48))
    scene.close()
    assert (pictures[0] != pictures[1]).any()
    for picture, terrain in zip(pictures, [*terrains, *terrains], strict=True):
        fresh = MujocoScene.from_xml_string(xml)
        fresh.model.hfield_data[:] = terrain
        fresh.refresh()
        np.testing.assert_array_equal(fresh.render(width=64, height=48), picture)
        fresh.close()
