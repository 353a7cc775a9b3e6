"""Hold conversations with a model; requests that were sent before get the kept answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.models.ask import ALONE, AS_IT_COMES, NATIVE, RAW, REPEATS_ANSWERED, Way, prompted
from benchmarks.models.catalogue import MODELS
from benchmarks.models.conversations.app import hold
from benchmarks.models.conversations.conversation import Conversation
from benchmarks.models.conversations.judge import judge
from benchmarks.models.conversations.kept_answers import answers_of
from benchmarks.models.conversations.transcript import Transcript
from benchmarks.models.conversations.words import words_of

WAYS = (AS_IT_COMES, REPEATS_ANSWERED, NATIVE, prompted("hermes"), RAW, ALONE)
"""The ways of asking a model whose template has tools. Other models are asked only in the way `AS_IT_COMES`."""


def ways_of(model: str) -> tuple[Way, ...]:
    """Return the ways in which conversations with a model are held."""
    return WAYS if model not in MODELS or MODELS[model].tools else (AS_IT_COMES,)


def words_now(model: str, way: str) -> str:
    """Return today's digest of the words of a way."""
    served = MODELS[model].file if model in MODELS else model
    return next((words_of(each, served) for each in WAYS if each.name == way), "")


def hold_all(
    file: Path,
    model: str,
    ways: Sequence[Way],
    chosen: Sequence[Conversation],
    *,
    done: Callable[[str, Conversation, str], bool],
    threads: int | None = None,
) -> Iterator[Transcript]:
    """Hold conversations with the model in a GGUF file; yield a transcript for each, and print the progress.

    Those for which `done` returns true, given the way, the conversation and the words, are left out.
    """
    with answers_of(file, threads=threads) as kept:
        for way in ways:
            words = words_of(way, file.stem)
            left = [each for each in chosen if not done(way.name, each, words)]
            for number, each in enumerate(left, 1):
                row = hold(kept, each, way, served=file.stem, model=model, words=words)
                outcomes = ", ".join(verdict.outcome for verdict in judge(each, row.turns))
                print(f"{model}, {way.name}: {number} of {len(left)}: {each.name}: {outcomes}", flush=True)
                yield row
