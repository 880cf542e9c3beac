"""Settings are checked at once, and a dict does for a configuration everywhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from gymnasium.spaces import Box

from superdex.envs import (
    AntEnvCfg,
    CartPoleEnv,
    CartPoleEnvCfg,
    HalfCheetahEnvCfg,
    SceneEnv,
    SceneEnvCfg,
)
from superdex.scenes import MujocoScene, SceneManager


def test_defaults_are_the_documented_ones():
    """The base settings are those of the reference."""
    cfg = SceneEnvCfg(control_frequency=20, simulation_frequency=100)
    assert cfg.steps_per_episode == -1
    assert cfg.reset_noise_scale == 0.0
    assert cfg.use_shared_scenes is True
    assert (cfg.render_mode, cfg.render_size, cfg.profile) == (None, None, False)
    assert (cfg.num_substeps, cfg.control_timestep, cfg.simulation_timestep) == (5, 0.05, 0.01)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"control_frequency": 0}, "control_frequency must be a positive number, got 0"),
        ({"simulation_frequency": -1}, "simulation_frequency must be a positive number"),
        ({"control_frequency": float("nan")}, "control_frequency must be a positive number"),
        ({"control_frequency": "fast"}, "control_frequency must be a positive number"),
        ({"control_frequency": 50, "simulation_frequency": 75}, "multiple of control_frequency"),
        ({"control_frequency": 50, "simulation_frequency": 25}, "multiple of control_frequency"),
        ({"steps_per_episode": 0}, "steps_per_episode must be -1 or a positive integer, got 0"),
        ({"steps_per_episode": 2.5}, "steps_per_episode must be -1 or a positive integer"),
        ({"reset_noise_scale": -0.1}, "reset_noise_scale must be a finite number ≥ 0, got -0.1"),
        ({"use_shared_scenes": "no"}, "use_shared_scenes must be True or False, got 'no'"),
        ({"use_gravity": 1}, "use_gravity must be True or False, got 1"),
        ({"render_mode": "human"}, "render_mode must be None or one of 'rgb_array', got 'human'"),
        ({"render_size": (640,)}, r"render_size must be \(width, height\) in pixels"),
        ({"render_size": (640, 0)}, r"render_size must be \(width, height\) in pixels"),
        ({"render_size": 640}, r"render_size must be \(width, height\) in pixels, got 640"),
        ({"render_size": (640, True)}, r"render_size must be \(width, height\) in pixels"),
        ({"steps_per_episode": True}, "steps_per_episode must be -1 or a positive integer"),
        ({"max_pole_angle": -1}, "max_pole_angle must be a number ≥ 0, got -1"),
        ({"max_pole_angle": float("nan")}, "max_pole_angle must be a number ≥ 0, got nan"),
        ({"max_pole_angle": "wide"}, "max_pole_angle must be a number ≥ 0, got 'wide'"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(values, message):
    """The message names the setting and the value."""
    with pytest.raises(ValueError, match=message):
        CartPoleEnvCfg(**values)


def test_an_unknown_key_is_refused_with_the_nearest_known_one():
    """A slip of the pen is answered with a suggestion, in a dict and as a keyword."""
    message = "CartPoleEnvCfg has no key 'use_dampin'; did you mean 'use_damping'?"
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        CartPoleEnv({"use_dampin": True})
    with pytest.raises(ValueError, match="did you mean 'use_damping'"):
        CartPoleEnv(use_dampin=True)
    with pytest.raises(ValueError, match="known keys: control_frequency, "):
        CartPoleEnv({"xyz": True})


def test_dict_configuration_and_keywords_say_the_same():
    """Three ways of one setting; keywords win."""
    expected = CartPoleEnvCfg(use_gravity=False)
    assert CartPoleEnvCfg.from_any({"use_gravity": False}) == expected
    assert CartPoleEnvCfg.from_any(expected) is expected
    assert CartPoleEnvCfg.from_any(use_gravity=False) == expected
    assert CartPoleEnvCfg.from_any({"use_gravity": True}, use_gravity=False) == expected
    assert CartPoleEnvCfg.from_any(CartPoleEnvCfg(), use_gravity=False) == expected


def test_the_callers_dict_is_left_alone():
    """A dict passed in is not changed."""
    config = {"use_gravity": False}
    CartPoleEnvCfg.from_any(config, free_pole=True)
    assert config == {"use_gravity": False}


def test_another_environments_configuration_is_refused():
    """So is anything that is no configuration."""
    with pytest.raises(TypeError, match="must be a CartPoleEnvCfg or a dict, got HalfCheetahEnvCf"):
        CartPoleEnv(HalfCheetahEnvCfg())
    with pytest.raises(TypeError, match="must be a CartPoleEnvCfg or a dict, got int"):
        CartPoleEnv(3)


def test_a_subclass_of_the_configuration_is_kept():
    """Overrides of a derived configuration may name what it adds."""

    @dataclass(frozen=True, kw_only=True)
    class LongPoleCfg(CartPoleEnvCfg):
        length: float = 2.0

    cfg = CartPoleEnvCfg.from_any(LongPoleCfg(), length=3.0)
    assert isinstance(cfg, LongPoleCfg)
    assert cfg.length == 3.0


def test_numpy_values_are_taken_like_pythons_own():
    """A NumPy bool gives the same scene name as a bool."""
    assert CartPoleEnvCfg(use_gravity=np.True_).use_gravity is True
    assert CartPoleEnvCfg(steps_per_episode=np.int64(5)).steps_per_episode == 5


def test_the_ant_has_one_friction_only():
    """Low and high friction at once make no sense."""
    with pytest.raises(ValueError, match="exclude each other"):
        AntEnvCfg(use_low_friction=True, use_high_friction=True)


@pytest.mark.parametrize(
    ("cfg_class", "values", "message"),
    [
        (AntEnvCfg, {"healthy_z_range": 5}, "healthy_z_range must be two heights"),
        (AntEnvCfg, {"healthy_z_range": (1.0, 0.2)}, "the lower one first"),
        (AntEnvCfg, {"healthy_z_range": ("a", "b")}, "healthy_z_range must be two heights"),
        (AntEnvCfg, {"healthy_z_range": (0.2, float("nan"))}, "healthy_z_range must be two"),
        (AntEnvCfg, {"contact_cost_weight": None}, "contact_cost_weight must be a finite number"),
        (HalfCheetahEnvCfg, {"forward_reward_weight": "x"}, "forward_reward_weight must be a fin"),
        (HalfCheetahEnvCfg, {"ctrl_cost_weight": float("inf")}, "ctrl_cost_weight must be a fini"),
    ],
)
def test_weights_and_ranges_are_checked_at_construction(cfg_class, values, message):
    """A wrong one does not wait for the first step to fail."""
    with pytest.raises(ValueError, match=message):
        cfg_class(**values)


def test_an_infinite_limit_is_no_limit():
    """Where a setting is a bound, infinity is a fine value; lists do for pairs."""
    assert CartPoleEnvCfg(max_pole_angle=np.inf).max_pole_angle == np.inf
    assert AntEnvCfg(healthy_z_range=[-np.inf, np.inf]).healthy_z_range == (-np.inf, np.inf)


def test_a_picture_size_may_be_of_numpy_integers():
    """They become Python's."""
    size = CartPoleEnvCfg(render_size=(np.int64(64), 48)).render_size
    assert size == (64, 48)
    assert type(size[0]) is int


BALL = """<mujoco><option timestep="0.004"/><worldbody><body name="ball"><joint type="slide"/>
<geom size="0.1"/></body></worldbody></mujoco>"""


class Ball(SceneEnv):
    """Does nothing, at the frequencies it is given."""

    by_hand = False

    def __init__(self, cfg=None, **overrides):
        super().__init__(cfg, **overrides)
        self._setup_observation_space(place=Box(-9, 9, (1,)))
        self._setup_action_space(force=Box(-1, 1, (1,)))
        if self.by_hand:
            self._scene = MujocoScene.from_xml_string(BALL)
        else:
            self._load_scene("ball", lambda: (MujocoScene.from_xml_string(BALL), None))


class BallByHand(Ball):
    """Takes no part in sharing."""

    by_hand = True


@pytest.mark.parametrize("use_shared_scenes", [True, False])
@pytest.mark.parametrize("frequency", [100, 150, 500, 1000])
def test_a_frequency_that_the_timestep_does_not_fit_is_refused_at_once(
    frequency, use_shared_scenes
):
    """The constructor names both numbers and both cures, and leaves no scene behind."""
    cfg = {"control_frequency": 50, "use_shared_scenes": use_shared_scenes}
    with pytest.raises(ValueError, match=f"Ball has simulation_frequency={frequency} Hz") as caught:
        Ball(cfg, simulation_frequency=frequency)
    said = str(caught.value)
    assert "timesteps of 0.004 s (250 Hz)" in said
    assert "divided by a whole number, such as" in said
    assert f'<option timestep="{1 / frequency:.6g}"/>' in said
    assert SceneManager.for_class(Ball).scene_count == 0


@pytest.mark.parametrize("frequency", [50, 125, 250])
def test_a_frequency_that_fits_is_taken(frequency):
    """Any whole number of timesteps makes a physics step."""
    with Ball(control_frequency=frequency, simulation_frequency=frequency) as env:
        assert env.scene_name == "ball"


def test_a_scene_that_was_built_by_hand_is_checked_at_the_first_reset():
    """There is no earlier moment."""
    with (
        BallByHand(control_frequency=50, simulation_frequency=100, use_shared_scenes=False) as env,
        pytest.raises(ValueError, match="no whole number of the model's timesteps"),
    ):
        env.reset(seed=0)
