"""Show what each autoreset mode returns, and store the same transitions from all three.

Run it with:

    python docs/code/replay_buffer.py
"""

# ruff: noqa: T201 - a program that shows something prints it

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

from superdex.vector import HybridVectorEnv

Transition = tuple[int, int, float, int, bool]


class Count(gymnasium.Env[np.ndarray, np.ndarray]):
    """Observes episode × 10 + step: 10, 11, 12, 13, then 20, 21, …; the third step is the last."""

    observation_space = Box(0, 1000, (1,), np.int64)
    action_space = Box(0, 1000, (1,), np.int64)

    def __init__(self) -> None:
        self._episode = self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin the next episode."""
        super().reset(seed=seed)
        self._episode, self._step = self._episode + 1, 0
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Count on, whatever the action."""
        self._step += 1
        return self._observation(), 1.0, self._step == 3, False, {}

    def _observation(self) -> np.ndarray:
        return np.array([10 * self._episode + self._step])


def run(mode: AutoresetMode, num_steps: int) -> list[Transition]:
    """Step one environment in a mode, print its rows, and return the transitions to store."""
    print(f"{mode.name}\ncall   action  obs  reward  terminated  autoreset_mask  final_obs")
    buffer: list[Transition] = []
    with HybridVectorEnv([Count], autoreset_mode=mode) as envs:
        obs, _ = envs.reset()
        print(f"reset          {obs[0, 0]}")
        for number in range(1, num_steps + 1):
            actions = np.array([[100 + number]])
            next_obs, reward, terminated, truncated, info = envs.step(actions)
            show(number, actions, next_obs, reward, terminated, envs.autoreset_mask, info)
            store(buffer, mode, obs, actions, reward, next_obs, terminated, envs, info)
            obs = next_obs
            if mode is AutoresetMode.DISABLED and (terminated | truncated).any():
                obs, _ = envs.reset_envs(terminated | truncated)
                print(f"reset_envs     {obs[0, 0]}")
    print()
    return buffer


def store(
    buffer: list[Transition],
    mode: AutoresetMode,
    obs: np.ndarray,
    actions: np.ndarray,
    reward: np.ndarray,
    next_obs: np.ndarray,
    terminated: np.ndarray,
    envs: HybridVectorEnv,
    info: dict[str, Any],
) -> None:
    """Append (obs, action, reward, next obs, terminated) of each environment that stepped."""
    valid = np.ones(envs.num_envs, bool)
    if mode is AutoresetMode.NEXT_STEP:
        valid = ~envs.autoreset_mask  # the action was ignored: no transition
    if mode is AutoresetMode.SAME_STEP and "final_obs" in info:
        ended = info["_final_obs"]  # their rows show the next episode already
        next_obs = np.where(ended[:, None], info["final_obs"], next_obs)
    for i in np.flatnonzero(valid):
        transition = obs[i, 0], actions[i, 0], reward[i], next_obs[i, 0], terminated[i]
        buffer.append(tuple(entry.item() for entry in transition))


def show(
    number: int,
    actions: np.ndarray,
    obs: np.ndarray,
    reward: np.ndarray,
    terminated: np.ndarray,
    autoreset: np.ndarray,
    info: dict[str, Any],
) -> None:
    """Print what one call of step returned."""
    final = info["final_obs"][0, 0] if "final_obs" in info else ""
    print(
        f"step {number}    {actions[0, 0]}    {obs[0, 0]}    {reward[0]:.0f}       "
        f"{terminated[0]!s:<5}       {autoreset[0]!s:<5}           {final}".rstrip()
    )


def main() -> None:
    """Run the three modes."""
    buffers = {mode: run(mode, num_steps=6) for mode in AutoresetMode}
    print("stored (obs, action, reward, next obs, terminated)")
    for mode, buffer in buffers.items():
        print(mode.name)
        for transition in buffer:
            print("  ", transition)


if __name__ == "__main__":
    main()
