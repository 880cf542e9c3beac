"""Learn Tron light cycles from self-play, and measure it against the engine's bots.

One policy plays both seats of a few hundred games at once. It scores each legal action by a
weighted sum of the features that the engine gives for it, and draws one, better scores more often.
REINFORCE moves the weights: what a seat chose before it won becomes likelier, what it chose before
it lost less so.

    python examples/self_play.py
"""

import argparse
import math
from typing import NamedTuple

import numpy as np

from superdex.games import VectorGameEnv

BOARD = {"width": 16, "height": 12}
CELLS = BOARD["width"] * BOARD["height"]
FEATURES = {"turn": 1, "room": CELLS, "margin": CELLS}  # and what each is divided by
DISCOUNT = 0.97

Batch = dict[str, np.ndarray]


class Choice(NamedTuple):
    """What all games chose in one step, and what came of it."""

    features: np.ndarray  # (num_envs, actions, features)
    probabilities: np.ndarray  # (num_envs, actions)
    row: np.ndarray  # (num_envs,), of the action that was drawn
    seat: np.ndarray  # (num_envs,), who chose
    seat_reward: np.ndarray  # (num_envs, seats)
    over: np.ndarray  # (num_envs,), whether the episode ended


def look_at(env: VectorGameEnv, batch: Batch) -> np.ndarray:
    """Return the features that the policy uses; numbers of cells as a share of the board."""
    columns = [env.action_feature_names.index(name) for name in FEATURES]
    features: np.ndarray = batch["action_features"][..., columns] / np.array([*FEATURES.values()])
    return features


def play(
    env: VectorGameEnv, batch: Batch, weights: np.ndarray, steps: int, rng: np.random.Generator
) -> tuple[Batch, list[Choice]]:
    """Play on from a batch; return the last one and all choices."""
    choices = []
    for _ in range(steps):
        features = look_at(env, batch)
        # Padding gets the score −∞, so its probability is 0: no illegal action is ever drawn.
        scores = np.where(batch["action_mask"], features @ weights, -np.inf)
        likely = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities = likely / likely.sum(axis=1, keepdims=True)
        row = (probabilities.cumsum(axis=1) > rng.random((env.num_envs, 1))).argmax(axis=1)
        batch = env.step(np.take_along_axis(batch["action_id"], row[:, None], axis=1)[:, 0])
        # Rewards and `over` are of the step; the observation may be of the next episode already.
        over = (batch["terminated"] | batch["truncated"]) > 0
        seat, rewards = batch["acting_seat"], batch["seat_reward"]
        choices.append(Choice(features, probabilities, row, seat, rewards, over))
    return batch, choices


def gradient(choices: list[Choice]) -> np.ndarray:
    """Return by how much each weight raises the discounted return, on average over the choices."""
    envs = np.arange(len(choices[0].seat))
    to_come = np.zeros_like(choices[0].seat_reward)  # for every seat, from here to the end
    known = np.zeros(len(envs), bool)  # whether that end lies within the choices
    total, count = np.zeros(len(FEATURES)), 0
    for choice in reversed(choices):
        to_come[choice.over] = 0  # what was added so far belongs to the next episode
        known |= choice.over
        to_come = choice.seat_reward + DISCOUNT * to_come
        returns = np.where(known, to_come[envs, choice.seat], 0)
        expected = (choice.probabilities[..., None] * choice.features).sum(axis=1)
        total += returns @ (choice.features[envs, choice.row] - expected)
        count += int(known.sum())
    return total / max(count, 1)


def count_wins(weights: np.ndarray, bot: str, games: int, seed: int) -> int:
    """Return how many games the best-scored actions win; the policy begins every other one."""
    envs, won = np.arange(games), np.zeros(games, bool)
    ours = envs % 2
    with VectorGameEnv("tron", games, seed, options=BOARD, auto_reset=False) as env:
        batch = env.reset()
        while not batch["terminated"].all():
            scores = np.where(batch["action_mask"], look_at(env, batch) @ weights, -np.inf)
            actions = batch["action_id"][envs, scores.argmax(axis=1)]
            theirs = batch["seat"] != ours
            batch = env.step(np.where(theirs, env.bot_moves(bot, theirs), actions))
            won |= batch["seat_reward"][envs, ours] > 0
    return int(won.sum())


def wilson(wins: int, games: int, z: float = 1.96) -> tuple[float, float]:
    """Return the 95 % interval of the true share of wins (Wilson, 1927)."""
    centre = (wins + z * z / 2) / (games + z * z)
    half = z * math.sqrt(wins * (games - wins) / games + z * z / 4) / (games + z * z)
    return centre - half, centre + half


def main() -> None:
    """Learn, and tell how many games are won against two bots, before and after."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num_envs", type=int, default=256)
    parser.add_argument("--num_steps", type=int, default=64, help="between two updates")
    parser.add_argument("--num_updates", type=int, default=60)
    parser.add_argument("--learning_rate", type=float, default=20.0)
    parser.add_argument("--num_games", type=int, default=500, help="against each bot")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    rng = np.random.default_rng(arguments.seed)
    weights = np.zeros(len(FEATURES))

    def report(when: str) -> None:
        for bot in ("random", "flood_fill"):
            wins = count_wins(weights, bot, arguments.num_games, seed=arguments.seed + 1)
            low, high = wilson(wins, arguments.num_games)
            print(f"{when}: wins {wins} of {arguments.num_games} against {bot}", end=", ")
            print(f"95 % interval {low:.3f} to {high:.3f}")

    report("untrained")
    with VectorGameEnv("tron", arguments.num_envs, arguments.seed, options=BOARD) as env:
        batch = env.reset()
        for _ in range(arguments.num_updates):
            batch, choices = play(env, batch, weights, arguments.num_steps, rng)
            weights += arguments.learning_rate * gradient(choices)
    report("trained")
    print("weights:", ", ".join(f"{n} {w:.1f}" for n, w in zip(FEATURES, weights, strict=True)))


if __name__ == "__main__":
    main()
