"""Bootstrap intervals: what they are of known samples, and that they cover known rates."""

import math
import subprocess
import sys

import numpy as np
import pytest

from promptools.errors import UsageError, install_command
from promptools.harness.evaluation.intervals import (
    Interval,
    difference_interval,
    mean_interval,
    paired_difference_interval,
    rate_interval,
    ratio_interval,
    share_difference_interval,
    share_interval,
)


def test_the_interval_of_a_rate_is_as_wide_as_it_should_be():
    interval = rate_interval(300, 1000)
    half = 1.96 * math.sqrt(0.3 * 0.7 / 1000)
    assert interval.estimate == 0.3
    assert interval.low == pytest.approx(0.3 - half, abs=0.004)
    assert interval.high == pytest.approx(0.3 + half, abs=0.004)


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.9])
def test_intervals_cover_the_true_rate(rate):
    generator = np.random.default_rng(7)
    counts = generator.binomial(400, rate, size=300)
    covered = [interval.low <= rate <= interval.high for interval in (rate_interval(int(n), 400) for n in counts)]
    assert 0.9 < sum(covered) / 300 < 0.99


def test_intervals_cover_the_true_mean():
    generator = np.random.default_rng(3)
    samples = generator.exponential(2.0, size=(100, 80))
    covered = [interval.low <= 2 <= interval.high for interval in (mean_interval(list(row)) for row in samples)]
    assert 0.88 < sum(covered) / 100 <= 0.99


def test_a_mean_of_values_that_are_drawn_as_they_are():
    sample = [0.0, 0.5, 0.5, 1.0, 0.25]
    interval = mean_interval(sample)
    drawn = np.random.default_rng(1).choice(sample, size=(20000, 5)).mean(axis=1)
    assert interval.estimate == 0.45
    assert interval.low == pytest.approx(np.quantile(drawn, 0.025), abs=0.06)
    assert interval.high == pytest.approx(np.quantile(drawn, 0.975), abs=0.06)


def test_the_same_seed_the_same_interval():
    sample = [i % 7 for i in range(50)]
    assert mean_interval(sample) == mean_interval(sample)
    assert mean_interval(sample) != mean_interval(sample, seed=1)
    assert mean_interval(sample) == mean_interval(sample[::-1])


def test_what_does_not_vary_has_no_width():
    assert mean_interval([1, 1, 1]) == Interval(1, 1, 1)


@pytest.mark.parametrize("trials", [1, 3, 40, 1000])
def test_a_rate_of_0_or_1_has_the_exact_bound(trials):
    none, every = rate_interval(0, trials), rate_interval(trials, trials)
    assert (none.estimate, none.low) == (0, 0)
    assert (1 - none.high) ** trials == pytest.approx(0.05)
    assert (every.estimate, every.high) == (1, 1)
    assert every.low == pytest.approx(1 - none.high)
    assert share_interval([0.0] * trials) == none
    assert share_interval([1.0] * trials) == every


def test_bounds_cover_the_true_rate():
    """Rates close to 0 and 1, where most samples have no bootstrap interval at all."""
    generator = np.random.default_rng(11)
    for rate in (0.02, 0.97):
        counts = generator.binomial(40, rate, size=400)
        bounded = [rate_interval(int(n), 40) for n in counts if n in {0, 40}]
        assert len(bounded) > 50
        assert all(interval.low <= rate <= interval.high for interval in bounded)


def test_other_shares_have_the_bootstrap_interval():
    shares = [0.0, 0.5, 1.0, 0.25]
    assert share_interval(shares, seed=3) == mean_interval(shares, seed=3)
    assert share_difference_interval(shares, [0.0, 1.0]) == difference_interval(shares, [0.0, 1.0])


def test_the_difference_to_a_rate_of_0():
    defined, none = [1.0] * 20 + [0.0] * 20, [0.0] * 40
    difference, alone = share_difference_interval(defined, none), share_interval(defined)
    assert difference.estimate == 0.5
    assert difference.high == pytest.approx(alone.high)
    assert difference.low == pytest.approx(0.5 - math.hypot(0.5 - alone.low, share_interval(none).high))
    unknown = share_difference_interval([1.0], [0.0])
    assert (unknown.low, unknown.high) == (pytest.approx(1 - math.hypot(0.95, 0.95)), 1)
    assert share_difference_interval(none, none).low == -share_difference_interval(none, none).high < 0


@pytest.mark.parametrize(("before", "after"), [(0.3, 0.8), (0.02, 0.5), (0.01, 0.03)])
def test_differences_of_shares_cover_the_true_difference(before, after):
    generator = np.random.default_rng(5)
    covered = 0
    for _ in range(300):
        drawn = [list(map(float, generator.random(60) < rate)) for rate in (after, before)]
        interval = share_difference_interval(*drawn)
        covered += interval.low <= after - before <= interval.high
    assert covered / 300 > 0.9


def test_many_pairs_that_agree_prove_agreement_and_few_that_differ_prove_nothing():
    half = [1.0, 0.0] * 100
    same = paired_difference_interval(half, half)
    assert (same.estimate, same.low) == (0, -same.high)
    assert same.high == pytest.approx(1 - 0.05 ** (1 / 200))
    assert share_difference_interval(half, half).high > 0.09  # which does not know of the pairs
    three, ten = ([1.0] * n + [0.0] * (200 - n) for n in (3, 10))
    assert paired_difference_interval(three, [0.0] * 200).low < 0 < paired_difference_interval(ten, [0.0] * 200).low
    assert paired_difference_interval([0.0] * 200, ten).high < 0
    sure = paired_difference_interval(ten, [0.0] * 200, confidence=0.999)
    assert sure.low < paired_difference_interval(ten, [0.0] * 200).low


@pytest.mark.parametrize(("gained", "lost"), [(0.0, 0.0), (0.02, 0.02), (0.2, 0.05), (0.3, 0.3)])
def test_differences_of_pairs_cover_the_true_difference(gained, lost):
    generator = np.random.default_rng(9)
    covered = 0
    for _ in range(300):
        drawn = generator.random(120)
        before = [float(each < 0.5) for each in generator.random(120)]
        after = [
            1.0 if each < gained else 0.0 if each > 1 - lost else old for each, old in zip(drawn, before, strict=True)
        ]
        interval = paired_difference_interval(after, before)
        covered += interval.low <= (gained - lost) / 2 <= interval.high
    assert covered / 300 > 0.9


def test_differences_and_ratios():
    with_tools, without = [1] * 60 + [0] * 40, [1] * 5 + [0] * 95
    difference = difference_interval(with_tools, without)
    assert difference.estimate == pytest.approx(0.55)
    assert 0.4 < difference.low < 0.5 < 0.6 < difference.high < 0.7
    ratio = ratio_interval(with_tools, without)
    assert ratio.estimate == pytest.approx(12)
    assert 5 < ratio.low < 8
    assert ratio.high > 20
    assert ratio_interval(with_tools, [0, 0]) is None
    assert ratio_interval([1, 1], [1, 0]).high == math.inf


@pytest.mark.parametrize("run", [lambda: mean_interval([]), lambda: rate_interval(1, 0), lambda: rate_interval(3, 2)])
def test_samples_that_are_none(run):
    with pytest.raises(UsageError):
        run()


def test_texts():
    assert Interval(0.917, 0.862, 0.962).percent() == "91.7 % [86.2, 96.2]"
    assert rate_interval(0, 40).percent() == "0.0 % (at most 7.2 %)"
    assert rate_interval(40, 40).percent() == "100.0 % (at least 92.8 %)"
    assert mean_interval([1, 1]).percent() == "100.0 % [100.0, 100.0]"
    assert Interval(0.5, 0.25, 1.0).to_dict() == {"estimate": 0.5, "low": 0.25, "high": 1.0}


def test_without_numpy_the_extra_is_named():
    code = (
        "import importlib.util; found = importlib.util.find_spec;"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'numpy' else found(name, *rest);"
        "from promptools.harness.evaluation.intervals import rate_interval; rate_interval(1, 2)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert install_command("evaluation") in done.stderr
