"""Growth is told from noise: a check that could not fail would prove nothing."""

from __future__ import annotations

import numpy as np
import pytest

from growth import count_growth, memory_growth

X = np.arange(200) * 5000


def lingering_noise(seed, persistence=0.6):
    """Return noise whose values stay near the one before, as memory does."""
    rng = np.random.default_rng(seed)
    values = np.zeros(len(X))
    for index in range(1, len(X)):
        values[index] = persistence * values[index - 1] + rng.normal()
    return 1000 + values


def test_a_leak_in_noise_is_found():
    """Its slope too, within the interval."""
    growth = memory_growth(X, lingering_noise(0) + 2e-5 * X, floor=5)
    assert growth.grows
    assert abs(growth.slope - 2e-5) < growth.error
    assert growth.total == pytest.approx(growth.slope * (X[-1] - X[60]))


def test_noise_is_no_growth():
    """Of 300 series of lingering noise about 1 in 200 is taken for growth, as the interval says."""
    found = [memory_growth(X, lingering_noise(seed), floor=0).grows for seed in range(300)]
    assert sum(found) <= 6


def test_shrinking_is_no_growth():
    """However steep."""
    growth = memory_growth(X, lingering_noise(0) - 1e-3 * X, floor=0)
    assert not growth.grows
    assert growth.slope < 0


def test_a_certain_growth_below_the_floor_is_the_allocators():
    """And above it is not."""
    values = 1e-5 * X
    total = 1e-5 * (X[-1] - X[60])
    assert memory_growth(X, values, floor=0.9 * total).grows
    assert not memory_growth(X, values, floor=1.1 * total).grows


def test_what_fills_up_in_the_warm_up_is_no_growth():
    """Caches and learned columns."""
    values = lingering_noise(0) + np.minimum(np.arange(200), 50) * 1000
    assert not memory_growth(X, values, floor=5).grows
    assert not count_growth(X, np.minimum(np.arange(200), 50)).grows


@pytest.mark.parametrize("at", [61, 130, 199])
def test_one_more_of_a_count_is_growth(at):
    """Wherever it comes after the warm-up: counts have no noise."""
    values = np.where(np.arange(200) < at, 7, 8)
    growth = count_growth(X, values)
    assert growth.grows
    assert growth.total == 1


def test_a_count_that_stays_is_flat():
    """With a slope of exactly zero."""
    growth = count_growth(X, np.full(200, 7))
    assert (growth.slope, growth.total, growth.grows) == (0, 0, False)


def test_too_few_measurements_are_refused():
    """A slope's interval needs three, a count two."""
    with pytest.raises(ValueError, match="needs three measurements after the warm-up; got 2"):
        memory_growth([1, 2], [1, 2], floor=0)
    with pytest.raises(ValueError, match="needs two measurements after the warm-up; got 1"):
        count_growth([1], [1])


def test_places_and_measurements_go_together():
    """One for one."""
    with pytest.raises(ValueError, match="Each of 3 places has one measurement; got 2"):
        memory_growth([1, 2, 3], [1, 2], floor=0)
