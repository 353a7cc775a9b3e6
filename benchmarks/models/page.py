"""Write the part of docs/reference/matrix.md on real models: answers, runs of the agent, trials of prompt wordings."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import NormalDist, mean, median

from benchmarks.models import agent, folder_tasks
from benchmarks.models.ask import MOST_TOKENS, Row
from benchmarks.models.catalogue import MODELS
from benchmarks.models.conversations import report
from benchmarks.models.conversations.run import ways_of, words_now
from benchmarks.models.markdown import table, write_part
from benchmarks.models.question import KINDS, Question, questions
from benchmarks.models.rows import CONVERSATIONS, QUESTIONS
from benchmarks.models.score import judge

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "matrix.md"
TARGET = "results-models"
TRIALS = Path(__file__).with_name("trials.toml")
Judged = tuple[Row, Question, bool]
"""A row, its question, and whether the answer is right by the current rules."""


def write() -> None:
    """Write the part of the page."""
    write_part(PAGE, TARGET, text())


def text() -> str:
    """Return the part of the page for the current rows."""
    return "\n".join(_page()) + "\n\n"


def interval(right: int, total: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return Wilson's interval of a proportion, which is also valid for few questions, and near 0 and 1."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    middle = (right + z * z / 2) / (total + z * z)
    reach = z / (total + z * z) * math.sqrt(right * (total - right) / total + z * z / 4)
    return max(0.0, middle - reach), min(1.0, middle + reach)


def _page() -> Iterator[str]:
    asked = {each.name: each for each in questions()}
    judged = list(_judged(asked))
    yield INTRODUCTION.format(
        questions=len(asked), kinds=_kinds(asked.values()), tokens=MOST_TOKENS, held=_count(asked, "held")
    )
    for model in dict.fromkeys([*MODELS, *(row.model for row, _, _ in judged)]):
        of_model = [each for each in judged if each[0].model == model]
        if of_model:
            yield from _model(model, of_model, len(asked))
    yield from report.section(CONVERSATIONS.read(), words_now, ways_of)
    yield from _agent()
    yield from _folder_tasks()
    yield from _trials()


def _judged(asked: dict[str, Question]) -> Iterator[Judged]:
    for row in QUESTIONS.read():
        question = asked.get(row.question)
        if question is not None and question.digest == row.digest:
            right = row.outcome != "error" and judge(question, row.calls, row.content) == "right"
            yield row, question, right


def _model(model: str, judged: Sequence[Judged], questions: int) -> Iterator[str]:
    yield f"\n#### Questions to {model}\n\n{MODELS[model].title if model in MODELS else 'A file of your own'}.\n"
    ways = dict.fromkeys(row.way for row, _, _ in judged)
    yield from table(
        ("way", "due calls right", "several calls at once", "no call due: called", "prompt, tokens", "seconds, median"),
        [_way(way, [each for each in judged if each[0].way == way], questions) for way in ways],
    )
    yield "\nRight answers of each kind, of the questions by which words were chosen and of those held back:\n"
    yield from table(
        ("way", *KINDS, "chosen by", "held back"),
        [_by_kind(way, [each for each in judged if each[0].way == way]) for way in ways],
    )


def _way(way: str, judged: Sequence[Judged], questions: int) -> tuple[str, ...]:
    due = [each for each in judged if each[1].due]
    needless = [each for each in judged if not each[1].due]
    called = sum(bool(row.calls) for row, _, _ in needless)
    printed = sum(not row.calls and row.printed for row, _, _ in needless)
    more = f", printed in {printed}" if printed else ""
    part = "" if len(judged) == questions else f" ({len(judged)} questions)"
    return (
        way + part,
        _share(due),
        _share([each for each in due if each[1].kind == "parallel"]),
        f"{called} of {len(needless)}{more}",
        f"{mean(row.prompt_tokens for row, _, _ in judged):.0f}",
        f"{median(row.seconds for row, _, _ in judged):.1f}",
    )


def _by_kind(way: str, judged: Sequence[Judged]) -> tuple[str, ...]:
    def cell(holds: Callable[[Question], bool]) -> str:
        chosen = [right for _, question, right in judged if holds(question)]
        return f"{sum(chosen)} of {len(chosen)}"

    kinds = (cell(lambda question, kind=kind: question.kind == kind) for kind in KINDS)  # type: ignore[misc]
    return (
        way,
        *kinds,
        cell(lambda question: question.half == "chosen"),
        cell(lambda question: question.half == "held"),
    )


def _share(judged: Sequence[Judged]) -> str:
    right, total = sum(right for _, _, right in judged), len(judged)
    if not total:
        return "none asked"
    low, high = interval(right, total)
    return f"{right} of {total} ({100 * low:.0f} to {100 * high:.0f} %)"


def _agent() -> Iterator[str]:
    runs = agent.RUNS.read()
    if not runs:
        return
    yield AGENT.format(tasks=len(agent.TASKS), turns=agent.TURNS)
    pairs = dict.fromkeys((run.model, run.way) for run in runs)
    rows_of = {pair: [run for run in runs if (run.model, run.way) == pair] for pair in pairs}
    yield from table(
        ("model", "way", "right", "calls", *(task.name for task in agent.TASKS)),
        [
            (
                model,
                way,
                f"{sum(run.right for run in done)} of {len(done)}",
                str(sum(run.calls for run in done)),
                *("right" if any(run.task == task.name and run.right for run in done) else "-" for task in agent.TASKS),
            )
            for (model, way), done in rows_of.items()
        ],
    )


def _folder_tasks() -> Iterator[str]:
    runs = folder_tasks.read()
    if not runs:
        return
    yield FOLDER_TASKS.format(tasks=len(folder_tasks.TASKS), steps=folder_tasks.STEPS, tokens=folder_tasks.MOST_TOKENS)
    pairs = sorted({(run.model, run.way) for run in runs})
    rows_of = {pair: {run.task: run for run in runs if (run.model, run.way) == pair} for pair in pairs}
    names = [task.name for task in folder_tasks.TASKS]
    yield from table(
        ("model", "way", "right", "steps", "calls", *names),
        [
            (
                model,
                way,
                f"{sum(run.right for run in done.values())} of {len(done)}",
                str(sum(run.steps for run in done.values())),
                str(sum(run.calls for run in done.values())),
                *(("right" if done[name].right else "-") if name in done else "not run" for name in names),
            )
            for (model, way), done in rows_of.items()
        ],
    )


def _trials() -> Iterator[str]:
    if not TRIALS.exists():
        return
    trials = tomllib.loads(TRIALS.read_text(encoding="utf-8"))
    columns = trials["columns"]
    yield f"\n### How the words of prompt mode were chosen\n\n{trials['about'].strip()}\n"
    yield from table(columns, [tuple(str(each.get(column, "")) for column in columns) for each in trials["trial"]])
    yield f"\n{trials['outcome'].strip()}"


def _kinds(asked: Iterable[Question]) -> str:
    counts = dict.fromkeys(KINDS, 0)
    for question in asked:
        counts[question.kind] += 1
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())


def _count(asked: dict[str, Question], half: str) -> int:
    return sum(question.half == half for question in asked.values())


INTRODUCTION = """
## Real models

What small real models do on a real llama.cpp; [run the tests](../tasks/run-the-tests.md#real-models) says how they are
asked.

### Questions

- **Questions**: {questions} of our own ({kinds}): what a user says, the tools that
  are offered, and the calls that are due, with all alternatives that a reader would accept. A call is right with the
  right tool and exactly the right arguments, and an answer is right if all its calls are right and none is missing.
  `one` offers a single tool, `several` more of which one is due, `parallel` needs two to four calls at once, `nested`
  objects or lists, `enum` a value that the user's words stand for; in `none` no call is due, and `turns` are
  conversations with calls and results.
- **Ways**: `server alone` is the plain `openai` client on llama.cpp; `as it comes` is promptools without any setting;
  `raw mode` and `prompt mode` are forced, the latter in the dialect that promptools chooses or in the one that is
  named. The rows `as it comes` of the Qwen models are of native mode: they were measured before, and are the reason
  why, these models are asked in prompt mode first.
- **Figures**: every question once, at temperature 0, with at most {tokens} tokens for the answer. Shares have their
  95 % interval (Wilson). "Printed" counts replies without a call whose text holds one. Tokens of the prompt are those
  of the first request. Where some ways were asked fewer questions, since a processor of two cores takes hours for all,
  the row says how many.
- **Held back**: the words of prompt mode were chosen by the other questions; {held} judge the choice."""

FOLDER_TASKS = """
### Tasks in a folder

{tasks} small tasks (read, run, answer, fix) with gpt-oss' tools in a sandbox, at temperature 0, within {steps} replies
of at most {tokens} tokens: [`promptools agent`](../tasks/run-an-agent.md#from-the-command-line) as it comes, and a
plain loop around the `openai` client on the same llama.cpp, which ends with the first reply without calls, also where
the text holds one that the server did not read. A task is right by a rule: the answer holds what only a call could
tell, or the files are as they should be, and all others as they were.
"""
AGENT = """
### A small agent

{tasks} tasks in a folder of files: read one, run a command, answer, within {turns} turns. The tools are `read_file` and
`run_command`, the loop is what an app writes around the `openai` client. A task is right if the answer holds what only
a call could tell.
"""
