"""Run many ants with a seed each, and account for every episode: return, length and reason.

Shows what a batch gives you: seeds that don't depend on the split, rows that must not be counted,
reasons, and the parts of the reward.

    python examples/vectorized_run.py
"""

import argparse
from collections import defaultdict

import numpy as np

from superdex.envs import AntEnv
from superdex.vector import HybridVectorEnv


def run(num_envs: int, num_workers: int, num_steps: int) -> list[tuple[int, str, int, float]]:
    """Return (environment, reason, length, return) for each episode that ended."""
    episodes = []
    returns = np.zeros(num_envs)
    lengths = np.zeros(num_envs, int)
    env_fns = [lambda: AntEnv({"steps_per_episode": 60, "reset_noise_scale": 0.1})] * num_envs

    # num_workers= splits unevenly where it must: 17 environments over 6 workers is fine.
    with HybridVectorEnv(env_fns, num_workers=num_workers) as env:
        # A seed for each environment; an int s would mean s, s + 1, s + 2, …
        env.reset(seed=[1000 + 7 * index for index in range(num_envs)])
        env.action_space.seed(0)
        for _ in range(num_steps):
            _, rewards, terminated, truncated, info = env.step(env.action_space.sample())

            # The step after an end resets that environment and ignores its action. The mask says
            # which rows those are; training data must leave them out.
            real = ~env.autoreset_mask
            returns[real] += rewards[real]
            lengths[real] += 1

            for index in np.flatnonzero(terminated | truncated):
                # Infos are arrays by key; `_key` says which environments gave a value.
                key = "terminated_reason" if terminated[index] else "truncated_reason"
                reason = str(info[key][index])
                episodes.append((int(index), reason, int(lengths[index]), float(returns[index])))
                returns[index] = lengths[index] = 0
    return episodes


def main() -> None:
    """Run the same environments split in two ways, and compare every number."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num_envs", type=int, default=17)
    parser.add_argument("--num_steps", type=int, default=300)
    arguments = parser.parse_args()

    episodes = run(arguments.num_envs, 2, arguments.num_steps)

    by_reason = defaultdict(list)
    for _, reason, length, total in episodes:
        by_reason[reason].append((length, total))
    for reason, ended in by_reason.items():
        mean_length, mean_return = np.mean(ended, axis=0)
        print(f"{len(ended):4d} episodes ended: {reason}", end="")
        print(f" (on average after {mean_length:.0f} steps with return {mean_return:.1f})")

    # The environment's place in the batch decides its seed, not the worker it lives in: another
    # split gives the same episodes, to the last bit.
    same = run(arguments.num_envs, 3, arguments.num_steps) == episodes
    print(f"3 workers instead of 2 give the same {len(episodes)} episodes: {same}")


if __name__ == "__main__":
    main()
