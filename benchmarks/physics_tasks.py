"""The tasks whose cost is physics, for `physics.py`. Workers import this module by name."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium

from superdex.scenes import share_mujoco
from tasks import Task

__all__ = ["PHYSICS_TASKS", "PhysicsTask"]


@dataclass(frozen=True)
class PhysicsTask(Task):
    """One task.

    Attributes:
        make_ours: What builds our version, which is stepped at once; None where there is none.
        make_shared: What builds Gymnasium's own environment on a shared model; None where the
            environment is ours anyway.
    """

    make_ours: Callable[[], gymnasium.Env[Any, Any]] | None = None
    make_shared: Callable[[], gymnasium.Env[Any, Any]] | None = None


def _factory(env_id: str, **settings: Any) -> Callable[[], gymnasium.Env[Any, Any]]:
    return partial(gymnasium.make, env_id, disable_env_checker=True, **settings)


def _ours(name: str, env_id: str, title: str, **settings: Any) -> PhysicsTask:
    make = _factory(f"superdex.envs:{env_id}")
    return PhysicsTask(name, title, make, make_ours=make, **settings)


def _gymnasiums(
    env_id: str,
    title: str,
    *,
    settings: Mapping[str, Any] | None = None,
    envpool_settings: Mapping[str, Any] | None = None,
) -> PhysicsTask:
    settings = settings or {}
    make = _factory(env_id, **settings)
    has_ours = importlib.util.find_spec("superdex.envs.mujoco") is not None
    return PhysicsTask(
        env_id,
        title,
        make,
        envpool_id=env_id,
        envpool_settings=envpool_settings or {},
        make_ours=_factory(f"superdex.envs:superdex/{env_id}", **settings) if has_ours else None,
        make_shared=share_mujoco(make),
    )


_ALL = (
    _ours(
        "half_cheetah",
        "superdex_gym/HalfCheetah-v0",
        "our half-cheetah; EnvPool steps Gymnasium's",
        envpool_id="HalfCheetah-v5",
    ),
    _ours("cart_pole", "superdex_gym/CartPole-v0", "our cart-pole"),
    _gymnasiums("HalfCheetah-v5", "Gymnasium's half-cheetah"),
    _ours(
        "ant",
        "superdex_gym/AntNoContact-v0",
        "our ant, without contact wrenches",
    ),
    _gymnasiums(
        "Ant-v5",
        "Gymnasium's ant, without contact forces",
        settings={"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0},
        envpool_settings={"use_contact_force": False, "contact_cost_weight": 0.0},
    ),
)
PHYSICS_TASKS = {task.name: task for task in _ALL}
