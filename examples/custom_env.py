"""Write an environment of your own, check it, and step many of them on shared scenes.

A ball in a groove is pushed left and right and has to come to rest over a target. The target is
each environment's own; the groove, the ball and gravity are the scene's, which all share.

    python examples/custom_env.py
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from superdex.envs import SceneEnv, SceneEnvCfg, StopReasons
from superdex.scenes import MujocoScene
from superdex.testing import check_scene_env
from superdex.vector import HybridVectorEnv

_MODEL = """
<mujoco model="ball in a groove">
  <option timestep="0.01" gravity="0 0 -9.81"/>
  <worldbody>
    <light pos="0 -1 3"/>
    <geom type="plane" size="4 1 0.1"/>
    <body name="ball" pos="0 0 0.1">
      <joint name="groove" type="slide" axis="1 0 0" range="-2 2" damping="{damping}"/>
      <geom type="sphere" size="0.1" mass="0.5" rgba="0.9 0.4 0.1 1"/>
    </body>
  </worldbody>
  <actuator>
    <motor name="push" joint="groove" gear="4" ctrlrange="-1 1"/>
  </actuator>
</mujoco>
"""


@dataclass(frozen=True, kw_only=True)
class BallEnvCfg(SceneEnvCfg):
    """Settings of `BallEnv`, beside those that every environment has.

    Attributes:
        damping: How much the groove slows the ball. It is built into the scene.
        max_target: Targets are drawn from ± this. It is not: every environment has its own target.
    """

    control_frequency: float = 20
    simulation_frequency: float = 100
    steps_per_episode: int = 200
    damping: float = 0.5
    max_target: float = 1.5


class BallEnv(SceneEnv):
    """Push a ball until it rests over the target."""

    cfg_class = BallEnvCfg
    cfg: BallEnvCfg

    def __init__(self, cfg: BallEnvCfg | Mapping[str, Any] | None = None, **overrides: Any) -> None:
        super().__init__(cfg, **overrides)
        # Named boxes; users see one flat array with the names in alphabetical order.
        self._setup_observation_space(
            ball_position=Box(-np.inf, np.inf, (1,)),
            ball_velocity=Box(-np.inf, np.inf, (1,)),
            target=Box(-np.inf, np.inf, (1,)),
        )
        self._setup_action_space(push=Box(-1.0, 1.0, (1,)))
        self._target = 0.0

        # The name must hold every setting that changes what is built, and nothing else: scenes of
        # one name are shared. `fields` has that checked.
        self._load_scene(
            f"ball(damping={self.cfg.damping!r})",
            self._build_scene,
            fields={"damping": self.cfg.damping},
        )

    def _build_scene(self) -> tuple[MujocoScene, None]:
        # The second value is the "agent": whatever helps you to find your way in the scene.
        return MujocoScene.from_xml_string(_MODEL.format(damping=self.cfg.damping)), None

    def _reset_scene(self) -> None:
        # Chance comes from self.np_random, so that a seed gives the same episode anywhere.
        self._target = self.np_random.uniform(-self.cfg.max_target, self.cfg.max_target)
        self._scene.data.qpos[0] = self.np_random.uniform(-0.1, 0.1)

    def _apply_action(self, action: dict[str, Any]) -> None:
        self._scene.data.ctrl[:] = action["push"]

    def _make_observation(self) -> tuple[dict[str, Any], dict[str, Any]]:
        data = self._scene.data
        observation = {
            "ball_position": data.qpos,
            "ball_velocity": data.qvel,
            "target": np.array([self._target]),
        }
        return observation, {"distance": abs(float(data.qpos[0]) - self._target)}

    def _compute_reward_terms(
        self, action: dict[str, Any], observation: dict[str, Any], info: dict[str, Any]
    ) -> dict[str, float]:
        # The reward is the sum; each term is in the info as reward_<name>.
        return {"distance": -info["distance"], "effort": -0.01 * float(action["push"][0] ** 2)}

    def _check_stop_criteria(
        self, observation: dict[str, Any], info: dict[str, Any]
    ) -> StopReasons:
        rests = info["distance"] < 0.1 and abs(observation["ball_velocity"][0]) < 0.1
        return StopReasons(terminated="At rest over the target" if rests else None)


def push_towards_target(observations: NDArray[np.float32], env: BallEnv) -> NDArray[np.float32]:
    """Return actions of a hand-made controller: a spring to the target, and a brake."""
    seen = env.to_structured_observation(observations)
    spring = seen["target"] - seen["ball_position"]
    push = np.clip(1.0 * spring - 0.8 * seen["ball_velocity"], -1.0, 1.0)
    return env.to_action({"push": push})


def main() -> None:
    """Check the environment, then let a controller solve many of them at once."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num_envs", type=int, default=200)
    parser.add_argument("--num_workers", type=int, default=2)
    parser.add_argument("--num_steps", type=int, default=200)
    arguments = parser.parse_args()

    # Does it keep its promises? Resets that depend on what was before, states that leak into other
    # environments and the like are found here, not in training curves.
    check_scene_env(BallEnv)
    print("BallEnv keeps the promises of an environment on a shared scene.")

    names = BallEnv()
    ended = solved = 0
    lengths = np.zeros(arguments.num_envs, int)
    sum_of_lengths = 0
    with HybridVectorEnv([BallEnv] * arguments.num_envs, num_workers=arguments.num_workers) as env:
        observations, _ = env.reset(seed=1)
        for _ in range(arguments.num_steps):
            actions = push_towards_target(observations, names)
            observations, _, terminated, truncated, _ = env.step(actions)
            # Rows that reset in this step took no action: they are no steps of an episode.
            lengths += ~env.autoreset_mask
            done = terminated | truncated
            ended += int(done.sum())
            solved += int(terminated.sum())
            sum_of_lengths += int(lengths[done].sum())
            lengths[done] = 0
        print(f"live scenes in each worker: {list(env.statistics().live_scenes)}")
    print(f"{solved} of {ended} episodes came to rest over the target, in ", end="")
    print(f"{sum_of_lengths / max(ended, 1):.0f} steps on average.")
    names.close()


if __name__ == "__main__":
    main()
