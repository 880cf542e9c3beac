"""`check_scene_env` and `check_scene_name` find each kind of broken environment."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box

from superdex.envs import SceneEnv
from superdex.scenes import MujocoScene, SceneManager
from superdex.testing import check_scene_env, check_scene_name

BALL = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 0.1"/>
    <body name="ball" pos="0 0 0.15"><freejoint/><geom size="0.1" mass="{mass}"/></body>
  </worldbody>
</mujoco>
"""


class GoodEnv(SceneEnv):
    """Pushes a ball over the floor."""

    mass = 1.0

    def __init__(self, cfg=None, **overrides):
        super().__init__(cfg, **overrides)
        self._setup_observation_space(
            height=Box(-9, 9, (1,)), place=Box(-99, 99, (2,)), speed=Box(-99, 99, (3,))
        )
        self._setup_action_space(force=Box(-3, 3, (3,)))
        self._load_scene(*self.scene())

    def scene(self):
        return "ball", lambda: (MujocoScene.from_xml_string(BALL.format(mass=self.mass)), None)

    def _reset_scene(self):
        self._scene.data.qpos[:2] = self.np_random.uniform(-1, 1, 2)

    def _before_step(self):
        self.x_before = float(self._scene.data.qpos[0])

    def _apply_action(self, action):
        self._scene.data.xfrc_applied[1, :3] = action["force"]

    def _make_observation(self):
        data = self._scene.data
        return {"height": data.qpos[2:3], "place": data.qpos[:2], "speed": data.qvel[:3]}, {}

    def _compute_reward_terms(self, action, observation, info):
        return {"moved": float(observation["place"][0]) - self.x_before}


class ReadsUnsavedField(GoodEnv):
    """Measures from a field that it said it would not read."""

    def scene(self):
        xml = BALL.format(mass=1)
        return "ball", lambda: (MujocoScene.from_xml_string(xml, only_fields=True), None)

    def _before_step(self):
        self.x_before = float(self._scene.data.xpos[1, 0])


class KeepsStateInTheClass(GoodEnv):
    """Remembers in a place that siblings share."""

    memory: dict[str, float] = {}  # noqa: RUF012 - this is the fault

    def _make_observation(self):
        observation, info = super()._make_observation()
        self.memory["steps"] = self.memory.get("steps", 0.0) + 1
        return observation, {**info, "steps": self.memory["steps"]}


class ChangesTheModel(GoodEnv):
    """Draws a friction at reset, for all who share."""

    def _reset_scene(self):
        super()._reset_scene()
        self._scene.model.geom_friction[0, 0] = self.np_random.uniform(0.5, 1)


class RemembersItsPast(GoodEnv):
    """Starts where the last episode took it."""

    start = 0.0

    def _reset_scene(self):
        super()._reset_scene()
        self._scene.data.qpos[0] += self.start

    def _apply_action(self, action):
        super()._apply_action(action)
        self.start += 0.01


class DrawsFromAnotherGenerator(GoodEnv):
    """Its resets do not follow the seed."""

    rng = np.random.default_rng(0)

    def _reset_scene(self):
        self._scene.data.qpos[:2] = self.rng.uniform(-1, 1, 2)


class LeavesItsSpace(GoodEnv):
    def _make_observation(self):
        observation, info = super()._make_observation()
        return {**observation, "height": np.array([10.0])}, info


class GivesNoReason(GoodEnv):
    def step(self, action):
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, True, truncated, info


class LoadsByHand(GoodEnv):
    def _load_scene(self, name, builder, *, fields=None):
        self._scene, self._agent = builder()


class NamesEachScene(GoodEnv):
    """Puts something into the name that differs for every environment."""

    def scene(self):
        _, builder = super().scene()
        return f"ball {id(self)}", builder


class KeepsItsSceneForever(GoodEnv):
    def close(self):
        pass


class LeavesMassOutOfTheName(GoodEnv):
    """Builds another ball for every frame rate, under one name."""

    def __init__(self, cfg=None, **overrides):
        self.mass = (cfg or {}).get("control_frequency", 50) / 50
        super().__init__(cfg, **overrides)


@pytest.fixture(autouse=True)
def _no_scene_left(request):
    yield
    for manager in list(SceneManager._instances.values()):
        if "KeepsItsSceneForever" in manager.env_class_name:
            for name, count in dict(manager.scene_info).items():
                for _ in range(count):
                    manager.release_scene(name)
        assert manager.scene_count == 0


def test_a_good_environment_passes():
    """Alone, by two, by five; as a class and as a lambda that configures it."""
    check_scene_env(GoodEnv)
    for num_envs in (1, 2, 5):
        check_scene_env(lambda: GoodEnv({"steps_per_episode": 9}), num_envs=num_envs)


@pytest.mark.parametrize(
    ("env_class", "message"),
    [
        (
            ReadsUnsavedField,
            r"step \d+, reward differs in \['reward_moved'\] \(.*, expected .*\)",
        ),
        (KeepsStateInTheClass, r"on a shared scene, step \d+, info\['steps'\] differs"),
        (ChangesTheModel, "The model of a shared scene was changed in geom_friction"),
        (RemembersItsPast, "After random steps, a reset with the same seed gives another episode"),
        (
            DrawsFromAnotherGenerator,
            r"Environment 0 .*, step 0, observation differs in place\[0\] \(.*, expected .*\)",
        ),
        (LeavesItsSpace, "The observation lies outside its space"),
        (GivesNoReason, "terminated_reason is missing at the end of an episode"),
        (LoadsByHand, r"did not load its scene through _load_scene\(\)"),
        (NamesEachScene, "are not on one scene; their scene names are"),
        (KeepsItsSceneForever, "Scene 'ball' outlives its environments"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_broken_environment_is_found(env_class, message):
    """Each fault has a message of its own."""
    with pytest.raises(AssertionError, match=message):
        check_scene_env(env_class)


class MadeOfParts(GoodEnv):
    """Its constructor takes what no configuration holds."""

    def __init__(self, mass, *, name):
        self.mass, self.name = mass, name
        super().__init__({"steps_per_episode": 9})

    def scene(self):
        return self.name, super().scene()[1]


class MadeOfPartsAndBroken(MadeOfParts, ReadsUnsavedField):
    """Reads what was not saved as well."""

    def scene(self):
        return ReadsUnsavedField.scene(self)


def test_a_constructor_of_any_kind_is_checked():
    """The environments on scenes of their own are the factory's too."""
    check_scene_env(lambda: MadeOfParts(2.0, name="heavy ball"))
    with pytest.raises(AssertionError, match="reward differs"):
        check_scene_env(lambda: MadeOfPartsAndBroken(2.0, name="heavy ball"))
    with MadeOfParts(1.0, name="ball") as env:
        assert env.cfg.use_shared_scenes


def test_one_object_returned_twice_is_refused():
    """There would be nothing to compare it with."""
    with (
        GoodEnv() as env,
        pytest.raises(AssertionError, match="was not built by this call of the factory"),
    ):
        check_scene_env(lambda: env, num_envs=1)


def test_what_is_no_scene_environment_is_refused():
    """The message names the class."""
    import gymnasium as gym

    with pytest.raises(AssertionError, match="is no SceneEnv"):
        check_scene_env(lambda: gym.make("CartPole-v1"))


def test_a_name_that_leaves_out_a_field_is_found():
    """The message names both configurations and what differs in the models."""
    configs = [{"control_frequency": 50}, {"control_frequency": 25}]
    with pytest.raises(AssertionError, match=r"share the scene name 'ball'.*body_mass"):
        check_scene_name(LeavesMassOutOfTheName, configs)
    check_scene_name(GoodEnv, configs)
    check_scene_name(LeavesMassOutOfTheName, configs[:1] * 2)


def test_a_caller_who_has_an_environment_on_the_scene_may_check():
    """A scene that others hold is not taken for one that was left behind."""
    with GoodEnv() as own:
        check_scene_env(GoodEnv, num_steps=5)
        own.reset(seed=0)


def test_nothing_to_check_is_refused():
    """No environment is no proof."""
    with pytest.raises(ValueError, match="num_envs must be at least 1, got 0"):
        check_scene_env(GoodEnv, num_envs=0)


def test_names_can_be_checked_on_mujoco_only():
    """A scene without a model says so."""

    class Plain:
        def capture_state(self):
            return 0

        def restore_state(self, handle): ...
        def release_state(self, handle): ...
        def step(self, dt): ...
        def close(self): ...

    class PlainEnv(GoodEnv):
        def scene(self):
            return "plain", lambda: (Plain(), None)

    with pytest.raises(ValueError, match="compares MuJoCo models, and Plain has none"):
        check_scene_name(PlainEnv, [{}])
