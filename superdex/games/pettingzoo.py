"""One game as a PettingZoo environment; needs the extra `pettingzoo`.

It is no part of `superdex.games` itself, so that PettingZoo is only imported where it is used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from superdex.errors import ResetNeeded
from superdex.games._spaces import array_space, mask_over_ids
from superdex.games._vector import VectorGameEnv

try:
    from pettingzoo import AECEnv
except ImportError as error:
    raise ImportError(
        "superdex.games.pettingzoo needs PettingZoo: pip install 'superdex-vector[pettingzoo]'."
    ) from error

__all__ = ["PettingZooGameEnv"]

_NAMES = {"observation": "board_tokens", "state": "state"}


# PettingZoo ships no type information.
class PettingZooGameEnv(AECEnv[str, dict[str, np.ndarray], int]):  # type: ignore[misc]
    """One game, whose seats take turns as the agents `player_0`, `player_1`, ….

    An observation is a dict: `observation`, the board; `state`, the compact state; `action_mask`,
    (ids,) int8. An agent sees the position when it is to move; until its next turn, `observe` gives
    it what it saw last, with a mask of zeros, for a game only shows what the seat to move may see.

    An illegal action leaves the game as it is: the agent is to move again, its reward is 0, and
    `infos[agent]["action_valid"]` is False.

    Args:
        game: As in `VectorGameEnv`.
        seed: Of the first episode; random where it is None.
        **settings: As in `VectorGameEnv`, but for `auto_reset`.

    Attributes:
        games: The `VectorGameEnv` of one game that it stands on.

    Example:
        >>> from superdex.games.pettingzoo import PettingZooGameEnv
        >>> env = PettingZooGameEnv("tron", seed=7)
        >>> env.reset()
        >>> for agent in env.agent_iter():
        ...     observation, reward, terminated, truncated, info = env.last()
        ...     over = terminated or truncated
        ...     env.step(None if over else int(observation["action_mask"].argmax()))
        >>> env.agents
        []
    """

    def __init__(self, game: str, seed: int | None = None, **settings: Any) -> None:
        super().__init__()
        if "auto_reset" in settings:
            raise TypeError("auto_reset is not for one game: PettingZoo's callers reset it.")
        self.games = VectorGameEnv(game, 1, seed, auto_reset=False, **settings)
        about = self.games.description
        self.metadata = {"name": f"{about.name}_v0", "render_modes": [], "is_parallelizable": False}
        self.render_mode = None
        self.possible_agents = [f"player_{seat}" for seat in range(about.num_seats)]
        spec = self.games.batch_spec()
        shown = {name: array_space(spec[key]) for name, key in _NAMES.items()}
        self.observation_spaces = {
            agent: spaces.Dict({**shown, "action_mask": spaces.MultiBinary(about.num_actions)})
            for agent in self.possible_agents
        }
        self.action_spaces = {
            agent: spaces.Discrete(about.num_actions) for agent in self.possible_agents
        }
        self._seen: dict[str, dict[str, np.ndarray]] = {}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Return the space of an agent's observations, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Return the space of an agent's actions, always the same object."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin a new episode: of this seed, or the next one.

        Args:
            seed: An integer of 64 bits, or None.
            options: Not used; PettingZoo's callers may pass some.

        Raises:
            ValueError: If the seed is no such integer; nothing was reset then.
        """
        batch = self.games.reset(seed=seed)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {"action_valid": True} for agent in self.agents}
        self._skip_agent_selection = None
        self._seen = {}
        self.agent_selection = self._look(batch)
        self._state_ids = batch["state_id"]

    def step(self, action: int | None) -> None:
        """Play an action for the agent to move; None for one whose episode has ended.

        Raises:
            ValueError: If the action is no integer; nothing was stepped then.
            ResetNeeded: Before the first reset, and when nobody is left.
            StaleStateError: If the game has moved since the last step came to its end, as after
                Ctrl-C; reset it.
        """
        if not getattr(self, "agents", None):
            raise ResetNeeded("Nobody is playing: call reset first. Nothing was stepped.")
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        if isinstance(action, bool) or not isinstance(action, int | np.integer):
            raise ValueError(f"action must be an integer, got {action!r}. Nothing was stepped.")
        batch = self.games.step_checked(np.array([action]), self._state_ids)
        self._cumulative_rewards[agent] = 0.0
        self.rewards = {
            name: float(batch["seat_reward"][0, seat])
            for seat, name in enumerate(self.possible_agents)
        }
        terminated, truncated = bool(batch["terminated"][0]), bool(batch["truncated"][0])
        self.terminations = dict.fromkeys(self.agents, terminated)
        self.truncations = dict.fromkeys(self.agents, truncated)
        self.infos[agent] = {"action_valid": bool(batch["action_valid"][0])}
        to_move = self._look(batch)
        if terminated or truncated:  # then whose turn it would be says nothing
            to_move = self.agents[(self.agents.index(agent) + 1) % len(self.agents)]
        self.agent_selection = to_move
        self._accumulate_rewards()
        self._state_ids = batch["state_id"]

    def observe(self, agent: str) -> dict[str, np.ndarray]:
        """Return what an agent sees, or saw when it was last to move: new arrays.

        Raises:
            ValueError: If there is no such agent.
        """
        if agent not in self.possible_agents:
            raise ValueError(f"There is no agent {agent!r}, only {self.possible_agents}.")
        if agent in self._seen:
            return {name: array.copy() for name, array in self._seen[agent].items()}
        spec = self.games.batch_spec()
        blank = {
            name: np.zeros(spec[key].shape[1:], spec[key].dtype) for name, key in _NAMES.items()
        }
        return {**blank, "action_mask": np.zeros(self.games.description.num_actions, np.int8)}

    def render(self) -> None:
        """Return nothing: there is no render mode."""

    def close(self) -> None:
        """Give the game back."""
        self.games.close()

    def _look(self, batch: dict[str, np.ndarray]) -> str:
        """Note what the agent to move sees, and return it; the others have no legal actions."""
        agent = self.possible_agents[int(batch["seat"][0])]
        mask = mask_over_ids(batch, self.games.description.num_actions)
        for seen in self._seen.values():
            seen["action_mask"] = np.zeros_like(mask[0])
        self._seen[agent] = {name: batch[key][0] for name, key in _NAMES.items()}
        self._seen[agent]["action_mask"] = mask[0]
        return agent
