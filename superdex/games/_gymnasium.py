"""A batch of games as a Gymnasium vector environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from superdex.errors import ResetNeeded
from superdex.games._spaces import array_space, mask_over_ids
from superdex.games._vector import VectorGameEnv

__all__ = ["GymnasiumVectorGameEnv"]

_END_KEYS = ("board_tokens", "state")
_POSITION_KEYS = (
    *_END_KEYS,
    "action_id",
    "action_features",
    "action_arg_mask",
    "visible_event_features",
    "visible_event_mask",
    "visible_event_affected",
    "visible_event_affected_mask",
)
_INFO_KEYS = (
    "seat",
    "acting_seat",
    "seat_reward",
    "action_valid",
    "action_truncated",
    "state_id",
    "episode_id",
)


class GymnasiumVectorGameEnv(VectorEnv[Any, Any, Any]):
    """Games as a `gymnasium.vector.VectorEnv`, for trainers and wrappers that speak Gymnasium.

    An observation is a dict: arrays of the batch as the seat to move sees them, and `action_mask`,
    (num_envs, ids) int8, 1 for each legal id. The reward is that of the seat that acted;
    `info["seat_reward"]` has that of every seat, and `info["seat"]` says which one is to move: all
    seats are played by the caller, in turn.

    With `auto_reset`, episodes end as in Gymnasium's SAME_STEP mode, with `info["final_obs"]`; its
    masks are 0. Without, as in its DISABLED mode, with `options={"reset_mask": …}` in `reset`.

    Args:
        game: As in `VectorGameEnv`.
        num_envs: As in `VectorGameEnv`.
        seed: As in `VectorGameEnv`.
        actions: "discrete": an action is an id. "box": it is a score for each id, from −1 to 1, and
            the legal action with the greatest score is played, the first of equal ones.
        observation_keys: Which arrays of the batch an observation has. With `auto_reset`, those
            that are known at the end of an episode: `board_tokens` and `state`.
        **settings: As in `VectorGameEnv`, but for `final_observation`.

    Attributes:
        games: The `VectorGameEnv` that it stands on. Each step looks up there what is legal and
            what has ended, so it is right after Ctrl-C, and after calls on `games` itself, too.

    Raises:
        ValueError: If an argument is not as above.
        TypeError: If `final_observation` is given.

    Example:
        >>> import numpy as np
        >>> from superdex.games import GymnasiumVectorGameEnv
        >>> with GymnasiumVectorGameEnv("tron", 4, seed=7) as env:
        ...     observation, info = env.reset()
        ...     observation, reward, terminated, truncated, info = env.step(np.zeros(4, int))
        >>> observation["action_mask"].shape
        (4, 4)
    """

    def __init__(
        self,
        game: str,
        num_envs: int,
        seed: int | None = None,
        *,
        actions: Literal["discrete", "box"] = "discrete",
        observation_keys: Sequence[str] = ("board_tokens", "state"),
        **settings: Any,
    ) -> None:
        if actions not in ("discrete", "box"):
            raise ValueError(f"actions must be 'discrete' or 'box', got {actions!r}.")
        if "final_observation" in settings:
            raise TypeError(
                "final_observation is no setting here: with auto_reset, info['final_obs'] has the "
                "final observations."
            )
        auto_reset = bool(settings.get("auto_reset", True))
        known = _END_KEYS if auto_reset else _POSITION_KEYS
        for key in observation_keys:
            if key not in known:
                raise ValueError(
                    f"observation_keys must be some of {', '.join(known)} where auto_reset is "
                    f"{auto_reset}, got {key!r}."
                )
        self.games = VectorGameEnv(game, num_envs, seed, final_observation=auto_reset, **settings)
        self.num_envs = self.games.num_envs
        self._keys = tuple(observation_keys)
        self._scores = actions == "box"
        count = self.games.description.num_actions
        spec = self.games.batch_spec()
        self.single_observation_space = spaces.Dict(
            {key: array_space(spec[key]) for key in self._keys}
            | {"action_mask": spaces.MultiBinary(count)}
        )
        self.single_action_space = (
            spaces.Box(-1, 1, (count,), np.float32) if self._scores else spaces.Discrete(count)
        )
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        mode = AutoresetMode.SAME_STEP if auto_reset else AutoresetMode.DISABLED
        self.metadata = {"autoreset_mode": mode}
        self._num_ids = count
        self._was_reset = False

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begin new episodes, in all games or in those of `options["reset_mask"]`.

        Args:
            seed: As in `VectorGameEnv.reset`; with a mask, too, it has one entry for each
                environment.
            options: None, or a dict with `reset_mask`, (num_envs,) bool.

        Returns:
            Observations of all games, and the info, whose masks name the games that were reset.

        Raises:
            ValueError: If the arguments are not as above; nothing was reset then.
        """
        rest = dict(options or {})
        mask = rest.pop("reset_mask", None)
        if mask is None:
            batch = self.games.reset(seed=seed, options=rest)
            mask = np.ones(self.num_envs, np.bool_)
        else:
            is_mask = isinstance(mask, np.ndarray) and mask.dtype == np.bool_
            if not is_mask or mask.shape != (self.num_envs,) or not mask.any():
                raise ValueError(
                    f"options['reset_mask'] must be a boolean array of shape ({self.num_envs},) "
                    f"with at least one True, got {mask!r}. Nothing was reset."
                )
            rows = np.flatnonzero(mask)
            if isinstance(seed, Sequence | np.ndarray):
                if len(seed) != self.num_envs:
                    raise ValueError(
                        f"seed must have {self.num_envs} entries, got {len(seed)}. Nothing was "
                        "reset."
                    )
                seed = [seed[row] for row in rows.tolist()]
            self.games.reset_slots(rows, seed, options=rest)
            batch = self.games.observe()
        self._was_reset = True
        return self._observation(batch), self._info(batch, mask)

    def step(
        self, actions: np.ndarray
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Play one action in every game.

        Args:
            actions: (num_envs,) integers, or (num_envs, ids) scores, as `action_space` says.

        Returns:
            Observation, reward (float64), terminated, truncated, and info: new arrays.

        Raises:
            ValueError: If the actions are not as above; nothing was stepped then.
            ResetNeeded: Before the first reset, or if a game has ended and `auto_reset` is off.
        """
        if not self._was_reset:
            raise ResetNeeded("The games were never reset: call reset first. Nothing was stepped.")
        if not self.games.auto_reset:
            self._check_none_has_ended()
        batch = self.games.step(self._best(actions) if self._scores else actions)
        terminated, truncated = batch["terminated"] != 0, batch["truncated"] != 0
        ended = terminated | truncated
        observation = self._observation(batch)
        info = self._info(batch, np.ones(self.num_envs, np.bool_))
        if self.games.auto_reset and ended.any():
            self._add_final(info, batch, ended)
        return observation, batch["reward"].astype(np.float64), terminated, truncated, info

    def close_extras(self, **kwargs: Any) -> None:
        """Give the games back."""
        self.games.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _mask(self) -> np.ndarray:
        """Return which ids are legal in the present positions: (num_envs, ids) int8."""
        return mask_over_ids(self.games._legal_actions("step"), self._num_ids)

    def _check_none_has_ended(self) -> None:
        ended = ~self._mask().any(axis=1)  # else there is always something to play
        if ended.any():
            raise ResetNeeded(
                f"Environment {int(ended.argmax())} has finished its episode and auto_reset is "
                "off: reset it first, with options={'reset_mask': …}. Nothing was stepped."
            )

    def _best(self, scores: Any) -> np.ndarray:
        """Return the legal id with the greatest score in each row."""
        shape = (self.num_envs, self._num_ids)
        if not isinstance(scores, np.ndarray) or scores.shape != shape:
            got = scores.shape if isinstance(scores, np.ndarray) else type(scores)
            raise ValueError(
                f"actions must be scores of shape {shape}, got {got}. Nothing was stepped."
            )
        if scores.dtype.kind != "f" or not np.isfinite(scores).all():
            raise ValueError(
                f"actions must be finite floats, got {scores}, of {scores.dtype}. Nothing was "
                "stepped."
            )
        best: np.ndarray = np.where(self._mask() != 0, scores, -np.inf).argmax(axis=1)
        return best.astype(np.int32)

    def _observation(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        mask = mask_over_ids(batch, self._num_ids)
        return {key: batch[key] for key in self._keys} | {"action_mask": mask}

    def _info(self, batch: dict[str, np.ndarray], mask: np.ndarray) -> dict[str, Any]:
        info: dict[str, Any] = {}
        for key in _INFO_KEYS:
            info[key], info[f"_{key}"] = batch[key], mask.copy()
        return info

    def _add_final(
        self, info: dict[str, Any], batch: dict[str, np.ndarray], ended: np.ndarray
    ) -> None:
        """Add what ended episodes showed last, as Gymnasium has it: an object for each row."""
        finals = np.full(self.num_envs, None, object)
        for row in np.flatnonzero(ended):
            finals[row] = {key: batch[f"final_{key}"][row] for key in self._keys}
            finals[row]["action_mask"] = np.zeros(self._num_ids, np.int8)
        info["final_obs"], info["_final_obs"] = finals, ended.copy()
        info["final_info"] = {
            key: value
            for name in ("acting_seat", "seat_reward", "action_valid")
            for key, value in ((name, batch[name].copy()), (f"_{name}", ended.copy()))
        }
        info["_final_info"] = ended.copy()
