"""Time the paths that every step takes, with pytest-benchmark.

Run with `nox -s hot_path`. Figures of one run compare with each other, not with those of another
machine or day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from contenders import Field, Hybrid
from superdex.envs import AntEnv, CartPoleEnv, HalfCheetahEnv, SceneEnv
from superdex.scenes import MujocoScene
from tasks import TASKS

_ENVS_PER_LOOP = 64


@pytest.fixture(params=["cart_pole", "half_cheetah", "ant"])
def envs(request: pytest.FixtureRequest) -> Iterator[list[SceneEnv]]:
    """Environments of one class that share a scene, reset."""
    make: Callable[[], SceneEnv] = {
        "cart_pole": CartPoleEnv,
        "half_cheetah": HalfCheetahEnv,
        "ant": AntEnv,
    }[request.param]
    made = [make() for _ in range(_ENVS_PER_LOOP)]
    for seed, env in enumerate(made):
        env.reset(seed=seed)
    yield made
    for env in made:
        env.close()


def test_step_of_a_shared_scene(benchmark: BenchmarkFixture, envs: list[SceneEnv]) -> None:
    """64 environments that share a scene, each stepped once in a plain loop."""
    actions = [env.action_space.sample() for env in envs]

    def step_all() -> None:
        for env, action in zip(envs, actions, strict=True):
            env.step(action)

    benchmark.extra_info["env_steps"] = _ENVS_PER_LOOP
    benchmark(step_all)


def test_capture_and_restore(benchmark: BenchmarkFixture, envs: list[SceneEnv]) -> None:
    """One restore, capture and release: what sharing costs each step."""
    scene = envs[0]._scene
    assert isinstance(scene, MujocoScene)
    handle = scene.capture_state()

    def take_turn() -> None:
        scene.restore_state(handle)
        scene.release_state(scene.capture_state())

    benchmark(take_turn)
    scene.release_state(handle)


@pytest.mark.parametrize("copy", [True, False], ids=["copy", "view"])
@pytest.mark.parametrize("num_envs", [64, 256])
@pytest.mark.parametrize("task", ["T0", "T0i", "T1", "T3"])
def test_step_of_a_vector(
    benchmark: BenchmarkFixture, task: str, num_envs: int, *, copy: bool
) -> None:
    """One step of a whole vector over two workers."""
    contender = Hybrid(Field(TASKS[task], num_envs, num_workers=2), copy=copy)
    benchmark.extra_info["env_steps"] = num_envs
    try:
        benchmark(contender.step)
    finally:
        contender.close()
