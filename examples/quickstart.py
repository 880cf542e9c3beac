"""Step a thousand cart-poles as one batch.

The environments are spread over a few worker processes. Inside a worker they take turns on one
physics scene, so that a thousand of them need little more memory than a few.

    python examples/quickstart.py
"""

import argparse
import time
from collections import Counter

from superdex.envs import CartPoleEnv
from superdex.vector import HybridVectorEnv, suggest_split


def main() -> None:
    """Step random actions and say how fast, and why episodes ended."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num_envs", type=int, default=1000)
    parser.add_argument("--num_workers", type=int, help="default: one for each CPU to use")
    parser.add_argument("--num_steps", type=int, default=200)
    arguments = parser.parse_args()

    # One factory per environment. It is called in the worker: no environment is built here.
    env_fns = [lambda: CartPoleEnv({"reset_noise_scale": 0.05})] * arguments.num_envs

    num_workers = arguments.num_workers or suggest_split(len(env_fns)).num_workers

    with HybridVectorEnv(env_fns, num_workers=num_workers) as env:
        print(f"{env.num_envs} environments over {env.num_workers} workers")
        print(f"one observation {env.single_observation_space.shape}, all of them", end=" ")
        print(env.observation_space.shape)

        # An int seeds environment i with seed + i, whatever the split.
        observations, _ = env.reset(seed=0)

        reasons: Counter[str] = Counter()
        start = time.perf_counter()
        for _ in range(arguments.num_steps):
            actions = env.action_space.sample()  # your policy goes here
            observations, _, terminated, truncated, info = env.step(actions)
            # Where an episode ended, the info says why.
            reasons.update(info["terminated_reason"][terminated] if terminated.any() else ())
            reasons.update(info["truncated_reason"][truncated] if truncated.any() else ())
        seconds = time.perf_counter() - start

        env_steps = env.statistics().env_steps
        print(f"{env_steps:,} environment steps in {seconds:.1f} s: {env_steps / seconds:,.0f} /s")
        print(f"observations of the last step: {observations.shape} {observations.dtype}")
        for reason, count in reasons.most_common():
            print(f"{count} episodes ended: {reason}")


# The workers import this file: without the guard each of them would run main() again.
if __name__ == "__main__":
    main()
