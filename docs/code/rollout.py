"""Collect rollouts for an on-policy trainer, and estimate advantages from them.

Run it with:

    python docs/code/rollout.py
"""

# ruff: noqa: T201 - a program that shows something prints it

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from superdex.envs import CartPoleEnv
from superdex.vector import HybridVectorEnv

Value = Callable[[np.ndarray], np.ndarray]
Policy = Callable[[np.ndarray], np.ndarray]


@dataclass
class Rollout:
    """T steps of N environments; every array is (T, N, …)."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    values: np.ndarray
    next_values: np.ndarray
    ended: np.ndarray
    valid: np.ndarray


def collect(
    envs: HybridVectorEnv, observations: np.ndarray, policy: Policy, value: Value, num_steps: int
) -> tuple[Rollout, np.ndarray]:
    """Step `num_steps` times; return the rollout and the observations to go on from."""
    steps = []
    for _ in range(num_steps):
        actions = policy(observations)
        next_observations, rewards, terminated, truncated, _ = envs.step(actions)

        # A row that reset in this step took no action: it is no transition.
        valid = ~envs.autoreset_mask
        # In this mode the observation of a truncated step is the episode's last one, so its value
        # is the one to bootstrap from. After a terminated step there is nothing to come.
        next_values = np.where(terminated, 0.0, value(next_observations))

        ended = terminated | truncated
        steps.append(
            (observations, actions, rewards, value(observations), next_values, ended, valid)
        )
        observations = next_observations
    return Rollout(*map(np.stack, zip(*steps, strict=True))), observations


def advantages(rollout: Rollout, gamma: float = 0.99, lam: float = 0.95) -> np.ndarray:
    """Return generalized advantage estimates, (T, N); rows that are not valid are to be ignored.

    Schulman et al. (2016), equation 16, cut at the end of each episode.
    """
    delta = rollout.rewards + gamma * rollout.next_values - rollout.values
    result = np.zeros_like(delta)
    last = np.zeros(delta.shape[1])
    for t in reversed(range(len(delta))):
        # What comes after the end of an episode, or in a resetting row, belongs to the next one.
        goes_on = ~rollout.ended[t] & rollout.valid[t]
        last = delta[t] + gamma * lam * np.where(goes_on, last, 0.0)
        result[t] = last
    return result


def main() -> None:
    """Collect one rollout with a hand-made controller and a made-up value function."""

    def policy(observations: np.ndarray) -> np.ndarray:
        # angular velocity and angle: push towards where the pole falls
        push = 0.5 * observations[:, :1] + 2.0 * observations[:, 3:]
        return np.asarray(np.clip(push, -1.0, 1.0))

    def value(observations: np.ndarray) -> np.ndarray:
        return np.asarray(10.0 - 20.0 * np.abs(observations[:, 3]))

    with HybridVectorEnv([lambda: CartPoleEnv(steps_per_episode=40)] * 64, num_workers=2) as envs:
        observations, _ = envs.reset(seed=0)
        rollout, observations = collect(envs, observations, policy, value, num_steps=128)

    estimates = advantages(rollout)[rollout.valid]
    print(f"{rollout.valid.size} rows, {estimates.size} transitions")
    print(f"{int(rollout.ended.sum())} episodes ended")


if __name__ == "__main__":
    main()
