"""Figures of verdicts: shares with bootstrap intervals, for which conversations are resampled, not turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.models.conversations.conversation import Conversation
from benchmarks.models.conversations.judge import Verdict, judge
from benchmarks.models.conversations.transcript import Transcript
from promptools.harness.evaluation.intervals import CONFIDENCE, RESAMPLES, Interval, rate_interval


@dataclass(frozen=True, slots=True)
class Judged:
    """One transcript with its conversation and the verdicts on its turns."""

    transcript: Transcript
    conversation: Conversation
    verdicts: tuple[Verdict, ...]


def judged(transcripts: Sequence[Transcript], known: Sequence[Conversation]) -> list[Judged]:
    """Judge the transcripts of the conversations as they are now; transcripts of other or older ones are left out."""
    by_key = {(each.name, each.digest): each for each in known}
    return [
        Judged(each, conversation, tuple(judge(conversation, each.turns)))
        for each in transcripts
        if (conversation := by_key.get((each.conversation, each.digest))) is not None
    ]


def share(
    held: Sequence[Judged], holds: Callable[[Verdict], bool], among: Callable[[Verdict], bool] = lambda _: True
) -> Interval | None:
    """Return the share for which `holds` is true of the turns for which `among` is true; None without such turns.

    A share of 0 or 1 has the bound for as many independent outcomes as there are conversations.
    """
    pairs = _pairs(held, holds, among)
    total, turns = (sum(column) for column in zip(*pairs, strict=True)) if pairs else (0, 0)
    if not turns:
        return None
    if total in {0, turns}:
        return rate_interval(len(pairs) if total else 0, len(pairs))
    return _drawn(pairs)


def mean(held: Sequence[Judged], count: Callable[[Verdict], int]) -> Interval:
    """Return the mean of a count over all turns."""
    return _drawn(_pairs(held, count, lambda _: True))


def _pairs(
    held: Sequence[Judged], count: Callable[[Verdict], int], among: Callable[[Verdict], bool]
) -> list[tuple[int, int]]:
    """Return the sum of `count`, and the number of turns, for each conversation that has such turns."""
    chosen = [[verdict for verdict in each.verdicts if among(verdict)] for each in held]
    return [(sum(map(count, verdicts)), len(verdicts)) for verdicts in chosen if verdicts]


def _drawn(pairs: Sequence[tuple[int, int]]) -> Interval:
    """Return a ratio of sums with its interval. Conversations are resampled, since turns depend on each other."""
    import numpy as np

    sums = np.asarray(pairs, dtype=np.float64)
    total, turns = sums.sum(axis=0)
    drawn = np.random.default_rng(0).multinomial(len(pairs), [1 / len(pairs)] * len(pairs), size=RESAMPLES) @ sums
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], [tail, 1 - tail], method="closest_observation")
    return Interval(float(total / turns), float(low), float(high))
