"""Bootstrap intervals of means, of differences between means, and of ratios of means.

A sample is resampled with replacement a thousand times, and the middle 95 % of the results are the interval. Only the
mean of each resample is needed. It is therefore enough to draw the counts of the distinct values from a multinomial
distribution. The cost then depends on the number of distinct values, which is two for yes-or-no outcomes.

The values must be independent. If questions have several answers, the sample must therefore hold the mean of each
question.

An outcome that is missing in the sample is missing in every resample too, so the bootstrap interval of a rate of 0
would have no width. A rate of 0 has an exact one-sided binomial bound instead (Clopper and Pearson 1934): the highest
rate at which a sample without any success has a probability of at least 5 %. A rate of 1 has the corresponding lower
bound.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, install_command

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

RESAMPLES = 1000
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate, and the lower and upper ends of the interval around the estimate.

    If all values of a sample are equal, a bootstrap interval has no width. For this reason, if a rate is 0 or 1,
    `rate_interval` and `share_interval` use an exact bound instead.
    """

    estimate: float
    low: float
    high: float

    def percent(self) -> str:
        """Return the interval in percent: `91.7 % [86.2, 96.2]`, or for a one-sided bound `0.0 % (at most 7.2 %)`."""
        if self.estimate == 0 < self.high:
            return f"0.0 % (at most {100 * self.high:.1f} %)"
        if self.low < self.estimate == 1:
            return f"100.0 % (at least {100 * self.low:.1f} %)"
        return f"{100 * self.estimate:.1f} % [{100 * self.low:.1f}, {100 * self.high:.1f}]"

    def to_dict(self) -> dict[str, float]:
        """Return the interval as a JSON object."""
        return {"estimate": self.estimate, "low": self.low, "high": self.high}


def mean_interval(sample: Sequence[float], *, seed: int = 0) -> Interval:
    """Return the mean of a sample with its interval."""
    return _interval(_mean(sample), _resampled_means(sample, _generator(seed)))


def rate_interval(successes: int, trials: int, *, seed: int = 0) -> Interval:
    """Return the share of successes with its interval. If the share is 0 or 1, one end is an exact one-sided bound."""
    if not 0 <= successes <= trials or not trials:
        raise UsageError(f"{successes} of {trials} is not a valid rate")
    rate = successes / trials
    if rate in {0, 1}:
        return _bounded(rate, trials)
    return _interval(rate, _generator(seed).binomial(trials, rate, RESAMPLES) / trials)


def share_interval(shares: Sequence[float], *, confidence: float = CONFIDENCE, seed: int = 0) -> Interval:
    """Return the mean of shares from 0 to 1 with its interval.

    If the mean is 0 or 1, one end of the interval is the exact one-sided bound for the same number of yes-or-no
    outcomes. The bound also holds for shares, because the probability of a share above 0 is at least the mean of the
    shares.
    """
    mean = _mean(shares)
    if mean in {0, 1}:
        return _bounded(mean, len(shares), confidence)
    return _interval(mean, _resampled_means(shares, _generator(seed)), confidence)


def difference_interval(sample: Sequence[float], baseline: Sequence[float], *, seed: int = 0) -> Interval:
    """Return the mean of `sample` minus the mean of `baseline`, with the interval of this difference."""
    generator = _generator(seed)
    means = _resampled_means(sample, generator) - _resampled_means(baseline, generator)
    return _interval(_mean(sample) - _mean(baseline), means)


def share_difference_interval(shares: Sequence[float], baseline: Sequence[float], *, seed: int = 0) -> Interval:
    """Return the mean of `shares` minus the mean of `baseline`, with the interval of this difference.

    All values are from 0 to 1. If one of the means is 0 or 1, the intervals of the two means are combined: the squares
    of the distances from the means to the ends of their intervals are added (Newcombe 1998, method 10).
    """
    if not {_mean(shares), _mean(baseline)} & {0, 1}:
        return difference_interval(shares, baseline, seed=seed)
    return _difference_of(share_interval(shares, seed=seed), share_interval(baseline, seed=seed))


def paired_difference_interval(
    shares: Sequence[float], baseline: Sequence[float], *, confidence: float = CONFIDENCE, seed: int = 0
) -> Interval:
    """Return the mean of `shares` minus the mean of `baseline`, with the interval of this difference.

    Both samples have the same cases in the same order. If only a few cases differ, the interval usually includes 0. If
    many cases agree, the interval is narrow.

    A case in which `shares` is higher is a gain, and a case in which `baseline` is higher is a loss. The intervals of
    the mean gain and the mean loss are combined as in `share_difference_interval`. But a case cannot be both a gain and
    a loss, so gains and losses are correlated, like counts of a multinomial distribution.
    """
    differences = [one - other for one, other in zip(shares, baseline, strict=True)]
    gains, losses = (
        share_interval([max(sign * each, 0.0) for each in differences], confidence=confidence, seed=seed)
        for sign in (1, -1)
    )
    others = (1 - gains.estimate) * (1 - losses.estimate)
    correlation = -math.sqrt(gains.estimate * losses.estimate / others) if others else 0.0
    return _difference_of(gains, losses, correlation)


def _difference_of(upper: Interval, lower: Interval, correlation: float = 0.0) -> Interval:
    def distance(one: float, other: float) -> float:
        return math.sqrt(one * one + other * other - 2 * correlation * one * other)

    difference = upper.estimate - lower.estimate
    below = distance(upper.estimate - upper.low, lower.high - lower.estimate)
    above = distance(upper.high - upper.estimate, lower.estimate - lower.low)
    return Interval(difference, max(-1.0, difference - below), min(1.0, difference + above))


def ratio_interval(sample: Sequence[float], baseline: Sequence[float], *, seed: int = 0) -> Interval | None:
    """Return the mean of `sample` divided by the mean of `baseline`, with the interval of this ratio.

    Return None if the mean of `baseline` is 0. If it is 0 in a resample only, the ratio of this resample counts as
    infinite.
    """
    if _mean(baseline) == 0:
        return None
    import numpy as np

    generator = _generator(seed)
    means, baselines = _resampled_means(sample, generator), _resampled_means(baseline, generator)
    ratios = np.divide(means, baselines, out=np.full(RESAMPLES, np.inf), where=baselines != 0)
    return _interval(_mean(sample) / _mean(baseline), ratios)


def _mean(sample: Sequence[float]) -> float:
    if not sample:
        raise UsageError("an interval needs at least one value")
    return sum(sample) / len(sample)


def _bounded(rate: float, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """Return a rate of 0 or 1 with its exact one-sided bound."""
    bound = (1 - confidence) ** (1 / trials)
    return Interval(1.0, bound, 1.0) if rate else Interval(0.0, 0.0, 1 - bound)


def require_numpy() -> None:
    """Raise `UsageError` if numpy is not installed."""
    if importlib.util.find_spec("numpy") is None:
        raise UsageError(f"the 95 % intervals of the results need numpy: {install_command('evaluation')}")


def _generator(seed: int) -> np.random.Generator:
    require_numpy()
    import numpy as np

    return np.random.default_rng(seed)


def _resampled_means(sample: Sequence[float], generator: np.random.Generator) -> Floats:
    import numpy as np

    values, counts = np.unique(np.asarray(sample, dtype=np.float64), return_counts=True)
    drawn = generator.multinomial(len(sample), counts / len(sample), size=RESAMPLES)
    means: Floats = drawn @ values / len(sample)
    return means


def _interval(estimate: float, resampled: Any, confidence: float = CONFIDENCE) -> Interval:
    import numpy as np

    tail = (1 - confidence) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail], method="closest_observation")
    return Interval(estimate, float(low), float(high))
