"""Another `VectorEnv` class as the inner layer."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from superdex.errors import WorkerRaised
from superdex.testing import row_info
from superdex.vector import HybridVectorEnv
from tests.vector.envs import Acting, Fixed, Walk, raising, walk_actions, walks

MODES = list(AutoresetMode)


def make(env_fns, k=3, **kwargs: Any) -> HybridVectorEnv:
    return HybridVectorEnv(env_fns, k, inner_env_cls=SyncVectorEnv, in_process=True, **kwargs)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_it_gives_what_our_own_inner_layer_gives(mode):
    """Observations, rewards, flags, masks and infos, through many episodes."""
    with (
        make(walks(6), autoreset_mode=mode) as theirs,
        HybridVectorEnv(walks(6), 3, autoreset_mode=mode, in_process=True) as ours,
    ):
        a, b = ours.reset(seed=3), theirs.reset(seed=3)
        np.testing.assert_array_equal(a.observation, b.observation)
        for batch in walk_actions(40, 6):
            one, two = ours.step(batch), theirs.step(batch)
            for x, y in zip(one[:4], two[:4], strict=True):
                np.testing.assert_array_equal(x, y)
                assert x.dtype == y.dtype
            np.testing.assert_array_equal(ours.autoreset_mask, theirs.autoreset_mask)
            for row in range(6):
                expected, got = row_info(one.info, row), row_info(two.info, row)
                np.testing.assert_equal(got, expected)


def test_disabled_leaves_resets_to_the_caller():
    """Some rows are reset through the class's own reset_mask."""
    with make(
        [partial(Fixed, length=n) for n in (1, 2, 3, 4)], 2, autoreset_mode="Disabled"
    ) as envs:
        envs.reset()
        actions = np.zeros((4, 1), np.float32)
        assert envs.step(actions).terminated.tolist() == [True, False, False, False]
        result = envs.reset_envs([0])
        assert result.observation[:, 0].tolist() == [0, 1, 1, 1]
        assert envs.step(actions).observation[:, 0].tolist() == [1, 2, 2, 2]


def test_seeds_go_by_global_index():
    """As everywhere."""
    with make(walks(6)) as envs:
        envs.reset(seed=[5, None, 7, 8, None, 10])
        assert envs.get_attr("seeds") == ([5], [None], [7], [8], [None], [10])


def test_calls_are_indexed():
    """Flat, in the order asked for."""
    with make(walks(6)) as envs:
        assert envs.call("add", 1, indices=[4, 0]) == (5, 1)
        assert envs.get_attr("tag") == (0, 1, 2, 3, 4, 5)


def test_attributes_are_set():
    """All of a worker's at once."""
    with make(walks(4), 2) as envs:
        envs.set_attr("tag", [9, 8, 7, 6])
        assert envs.get_attr("tag") == (9, 8, 7, 6)


def test_its_arguments_are_passed_on():
    """inner_env_kwargs reach the class."""
    with pytest.raises(WorkerRaised, match="unexpected keyword argument 'nonsense'"):
        make(walks(2), 2, inner_env_kwargs={"nonsense": 1})


def test_it_runs_in_workers():
    """Spawned ones, with the class pickled by name."""
    with HybridVectorEnv(walks(4), 2, inner_env_cls=SyncVectorEnv) as envs:
        observation = envs.reset(seed=1).observation
        with make(walks(4), 2) as local:
            np.testing.assert_array_equal(observation, local.reset(seed=1).observation)


def test_a_failure_names_call_and_worker():
    """Which environment it was, the class does not say."""
    with make([Walk, partial(Acting, "step", raising(KeyError, "k"))], 1) as envs:
        envs.reset()
        with pytest.raises(WorkerRaised) as caught:
            envs.step(walk_actions(1, 2)[0])
        assert (caught.value.worker, caught.value.call) == (1, "step")
        assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    "kwargs",
    [{"episode_seeds": True}, {"autoreset_options": "last"}],
    ids=lambda kw: next(iter(kw)),
)
def test_what_the_class_cant_do_is_refused(kwargs):
    """Seeds and options of autoresets are ours alone."""
    with pytest.raises(ValueError, match="need the inner layer of superdex"):
        make(walks(2), 1, **kwargs)


def test_its_arguments_without_a_class_are_refused():
    """They would be forgotten silently."""
    with pytest.raises(ValueError, match="inner_env_kwargs needs inner_env_cls"):
        HybridVectorEnv(walks(2), 1, inner_env_kwargs={"a": 1}, in_process=True)


class Choosing(Walk):
    def __init__(self):
        super().__init__()
        self.action_space = Discrete(3)


def test_other_spaces_are_refused_with_the_wrapper_that_helps():
    """As in our own inner layer."""
    with pytest.raises(TypeError, match=r"Discrete action space, Discrete\(3\).*BoxSpaces"):
        make([Choosing], 1)
