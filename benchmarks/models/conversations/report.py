"""What docs/reference/matrix.md says about conversations, and the summary that a run prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from benchmarks.models.ask import Way
from benchmarks.models.catalogue import MODELS
from benchmarks.models.conversations.conversation import COUNTS, conversations
from benchmarks.models.conversations.figures import Judged, judged, mean, share
from benchmarks.models.conversations.judge import Verdict
from benchmarks.models.conversations.transcript import Transcript
from benchmarks.models.markdown import table
from promptools.harness.evaluation.intervals import Interval

Group = tuple[str, str]
"""A way of asking and the digest of its words."""
FIRST = ("server alone", "as it comes", "native", "raw mode")
HEADS = (
    "way",
    "turns answered",
    "held back: answered",
    "without a needless call",
    "needless calls a turn",
    "none due: called",
    "requests a turn",
    "prompt, tokens",
    "tokens written a turn",
)


def section(
    rows: Sequence[Transcript], words_now: Callable[[str, str], str], ways_of: Callable[[str], Sequence[Way]]
) -> Iterator[str]:
    """Yield the lines of the page; `words_now` returns today's digest for a model and a way.

    `ways_of` returns the ways in which a model may be asked: the page names those in which it was not.
    """
    known = conversations()
    turns = [turn for each in known for turn in each.turns]
    held = [each for each in known if each.part == "held"]
    kinds = {kind: f"{count} {kind}" for kind, count in COUNTS.items()}
    yield ABOUT.format(count=len(known), turns=len(turns), held=len(held), kinds=", ".join(kinds.values()))
    of_rows = judged(rows, known)
    if not of_rows:
        yield "\nThere are no figures yet."
    for model in dict.fromkeys([*MODELS, *(each.transcript.model for each in of_rows)]):
        of_model = [each for each in of_rows if each.transcript.model == model]
        if of_model:
            yield f"\n#### Conversations with {model}\n"
            yield from tables(of_model, lambda way, words, model=model: words == words_now(model, way))  # type: ignore[misc]
            asked = {each.transcript.way for each in of_model}
            left = [way.name for way in ways_of(model) if way.name not in asked]
            if left:
                yield f"\nNot measured with this model: {', '.join(left)}."


def tables(held: Sequence[Judged], is_now: Callable[[str, str], bool]) -> Iterator[str]:
    """Yield the tables for one model; `is_now` says whether the words of a way are today's."""

    def order(group: Group) -> tuple[int, str, bool, str]:
        """Return a key that orders by way, and puts a way's older words before today's."""
        way, words = group
        return (FIRST.index(way) if way in FIRST else len(FIRST), way, is_now(way, words), words)

    ordered = sorted(held, key=lambda each: order(_group(each)))
    groups = [(key, [*members]) for key, members in groupby(ordered, key=_group)]
    yield from table(HEADS, [_figures(_title(key, is_now), members) for key, members in groups])
    yield "\nTurns answered of each kind:\n"
    yield from table(("way", *COUNTS), [_by_kind(_title(key, is_now), members) for key, members in groups])
    yield "\nWhat became of the turns:\n"
    outcomes = Counter(verdict.outcome for each in held for verdict in each.verdicts)
    names = [name for name, _ in outcomes.most_common()]
    yield from table(("way", *names), [_outcomes(_title(key, is_now), members, names) for key, members in groups])


def _group(each: Judged) -> Group:
    return each.transcript.way, each.transcript.words


def _title(group: Group, is_now: Callable[[str, str], bool]) -> str:
    way, words = group
    return way if is_now(way, words) else f"{way}, words of {words}"


def _figures(title: str, members: Sequence[Judged]) -> tuple[str, ...]:
    verdicts = [verdict for each in members for verdict in each.verdicts]
    back = [each for each in members if each.conversation.part == "held"]
    rows = [each.transcript for each in members]
    part = "" if len(members) == len(conversations()) else f" ({len(members)} conversations)"
    return (
        title + part,
        _share(members, lambda verdict: verdict.answered),
        _share(back, lambda verdict: verdict.answered),
        _share(members, lambda verdict: verdict.clean),
        _number(mean(members, lambda verdict: verdict.needless)),
        _share(members, lambda verdict: verdict.calls > 0, lambda verdict: not verdict.due),
        f"{sum(row.requests for row in rows) / len(verdicts):.1f}",
        f"{sum(row.prompt_tokens for row in rows) / len(rows):.0f}",
        f"{sum(row.written_tokens for row in rows) / len(verdicts):.0f}",
    )


def _by_kind(title: str, members: Sequence[Judged]) -> tuple[str, ...]:
    def cell(kind: str) -> str:
        verdicts = [verdict for each in members if each.conversation.kind == kind for verdict in each.verdicts]
        return f"{sum(verdict.answered for verdict in verdicts)} of {len(verdicts)}"

    return (title, *map(cell, COUNTS))


def _outcomes(title: str, members: Sequence[Judged], names: Sequence[str]) -> tuple[str, ...]:
    counts = Counter(verdict.outcome for each in members for verdict in each.verdicts)
    return (title, *(str(counts[name]) for name in names))  # type: ignore[index]


def _share(
    members: Sequence[Judged], holds: Callable[[Verdict], bool], among: Callable[[Verdict], bool] = lambda _: True
) -> str:
    found = share(members, holds, among)
    if found is None:
        return "none"
    counted = [holds(verdict) for each in members for verdict in each.verdicts if among(verdict)]
    return f"{sum(counted)} of {len(counted)} ({100 * found.low:.0f} to {100 * found.high:.0f} %)"


def _number(found: Interval) -> str:
    return f"{found.estimate:.2f} ({found.low:.2f} to {found.high:.2f})"


ABOUT = """
### Conversations

{count} conversations of {turns} turns ({kinds}), with results of tools that follow from rules
([the suite](../../benchmarks/models/conversations/suite)). A turn is answered if each due call was made, with exactly
the right arguments; if an answer in words came within one reply for each due call, one for the answer and two more; and
if it holds what it must. A needless call is one that is not due, has wrong arguments, or was made before. After a turn
that does not end the app says so and goes on with the next one.

`one` takes one call; in `chain` a second call needs the result of the first; in `mended` the first result is an error
that says what is right; results are `empty`, `long` (8 KB), or say no (`refused`); `parallel` takes two or three calls
that are independent; `recall` is a follow-up whose answer is in a result that is there, `chat` small talk between
calls; `restraint` is what none of the offered tools answers; `thirty` offers 30 tools; `eight` has eight turns of all
kinds.

`as it comes` is promptools without any setting, `native` and `raw mode` are forced, and so is prompt mode in the
dialect that is named. Intervals (95 %) are drawn over conversations. Every third conversation of a kind, {held} in all,
is held back: the words of prompt mode may be chosen with the others only. All APIs, streamed or not, send the same, so
the model was asked by one.

SmolLM2 and Gemma 270M, whose templates have no tools, hold a few conversations to show that nothing breaks.
Conversations that nobody here wrote are the multi-turn questions of [BFCL](../tasks/run-a-benchmark.md#bfcl)
(`multi_turn_base`, the first eight by seed 0, `bfcl-eval` 2026.3.23, Qwen2.5-Coder-1.5B through promptools,
temperature 0, at most 300 tokens an answer, 2026-11-29). Before the words were chosen by conversations, the package
stopped all eight in their first turn, since the model made one call after another: none right, 168 requests, 7,936
tokens written. With today's words it stops two: one right, 115 requests, 5,585 tokens."""
