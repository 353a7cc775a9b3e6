"""Run the Berkeley Function Calling Leaderboard. Its own package, bfcl-eval, asks the questions and checks the answers.

The package runs in a separate process: `BfclProcess` runs `bfcl_worker` with the Python interpreter that has the
package. `BfclRunLog` keeps the settings of a run, `read_answers` reads the files that the package wrote, and
`render_bfcl_report` renders the report.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from promptools.errors import PromptoolsError, UsageError, clip, without_credentials
from promptools.harness.evaluation.bfcl_worker import FAILED, OVERFLOW, PACKAGE
from promptools.harness.evaluation.intervals import Interval, share_interval
from promptools.harness.evaluation.resumable_log import ResumableLog
from promptools.harness.evaluation.tasks import settings_section, table
from promptools.json_values import is_array, is_object, try_json
from promptools.types import Reply

# The process in which bfcl-eval runs: another Python, since the package pins old versions of many others.


WORKER = Path(__file__).with_name("bfcl_worker.py")
INSTALL = (
    "It pins old versions, so install it apart, with Python 3.10 to 3.12: `python3.11 -m venv bfcl`,"
    " `bfcl/bin/pip install bfcl-eval soundfile`; then add --bfcl-python bfcl/bin/python"
)
LOG = "bfcl.log"
_LOG_END = 800


def find_python(path: str | None) -> str:
    """Return the path of the Python interpreter that runs bfcl-eval: `path`, or if that is None, this process's Python.

    Raises `UsageError` if `path` is not a program, or if `path` is None and this process's Python does not
    have bfcl-eval.
    """
    if path is not None:
        program = shutil.which(path)
        if program is None:
            raise UsageError(f"there is no program {path!r}: --bfcl-python is the Python that has bfcl-eval. {INSTALL}")
        return program
    if importlib.util.find_spec(PACKAGE) is None:
        raise UsageError(f"bfcl-eval is not installed here. {INSTALL}")
    return sys.executable


class BfclProcess:
    """A process that runs bfcl-eval in a folder, and writes what the package prints to `bfcl.log` in that folder.

    The process is sent `settings` as the first line of its input. Raises `UsageError` if the package cannot be
    imported, or if the package does not know one of the categories. Use the process in a `with` block.
    """

    def __init__(self, python: str, folder: Path, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self._python = python
        self._log = folder / LOG
        folder.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 the user names the program
                [python, str(WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(folder),
                text=True,
                encoding="utf-8",
            )
        try:
            self._send(json.dumps(settings))
            ready = self._read()
        except BaseException:
            self.close()
            raise
        self.version: str = ready["version"]
        """The version of bfcl-eval."""
        self.categories: list[str] = ready["categories"]
        """The chosen categories. A collection of categories is replaced by its members."""

    def start(self, base_url: str, api_key: str) -> list[str]:
        """Send the address of a server to the process, which then begins to ask that server the questions.

        Return the ids of the chosen questions, and of the entries that these questions depend on.
        """
        self._send(json.dumps({"base_url": base_url, "api_key": api_key}))
        ids: list[str] = self._read()["ids"]
        return ids

    def answers(self) -> Iterator[tuple[str, str]]:
        """Yield `(id, error)` as each question is answered or fails, then wait until all answers are checked.

        The error is empty if the question was answered.
        """
        while (event := self._read())["event"] != "done":
            yield event["id"], event["error"]

    def close(self) -> None:
        """End the process. Calling `close` again does nothing."""
        for stream in filter(None, (self._process.stdin, self._process.stdout)):
            # the process that the buffered data was meant for may have ended
            with contextlib.suppress(OSError):
                stream.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._ended() from None

    def _read(self) -> dict[str, Any]:
        """Wait for the next event of the process, and return it.

        Raises `UsageError` if the package cannot be imported or does not know a category, and `PromptoolsError` if the
        process has ended.
        """
        assert self._process.stdout is not None
        event = try_json(self._process.stdout.readline())
        if not is_object(event):
            raise self._ended()
        if event["event"] == "missing":
            raise UsageError(f"{self._python} cannot import bfcl_eval: {event['message']}. {INSTALL}")
        if event["event"] == "unknown":
            raise UsageError(f"{event['message']}. There are: {', '.join(event['names'])}")
        return event

    def _ended(self) -> PromptoolsError:
        self.close()
        text = self._log.read_text(encoding="utf-8", errors="replace").strip()
        return PromptoolsError(
            f"bfcl-eval ended with status {self._process.returncode}; its log {str(self._log)!r} ends: "
            f"{text[-_LOG_END:] or '(nothing)'}"
        )


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment variables for the process of bfcl-eval.

    With them, connections to this machine do not go through a proxy, even if HTTP_PROXY is set.
    """
    hosts = ",".join(filter(None, [os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), "127.0.0.1"]))
    return {**os.environ, "BFCL_PROJECT_ROOT": str(folder.resolve()), "NO_PROXY": hosts, "no_proxy": hosts}


# The log of a run: the settings, which must be the same when the run is resumed, and how each reply was obtained.


FILE = "run.jsonl"


class BfclRunLog(ResumableLog):
    """The log in the folder of a run: the run's settings, and how each reply was obtained, without the reply's text."""

    PLACE = "folder"

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.replies: Counter[str] = Counter()
        """Number of replies in each mode, under keys such as `in native mode`. The key `with a repaired call` counts
        the replies with a call that promptools repaired, or that it found although the server missed it."""
        self.overflow_retries = 0
        """Number of times that all questions whose context had overflowed were asked again."""
        super().__init__(folder / FILE, settings)

    def add(self, row: dict[str, Any]) -> None:
        """Count a reply or a retry that was read from the file."""
        if "overflow_retry" in row:
            self.overflow_retries += 1
            return
        self.replies[f"in {row.get('mode')} mode"] += 1
        self.replies["with a repaired call"] += bool(row.get("repaired"))

    def record(self, reply: Reply) -> None:
        """Record and count how a reply was obtained, without the text of the reply."""
        native = reply.trace.mode == "native"
        repaired = any(call.fixes or (native and call.dialect != "native") for call in reply.calls)
        row = {"mode": reply.trace.mode, "repaired": repaired}
        self.write(row)
        self.add(row)

    def record_overflow_retry(self) -> None:
        """Record and count that the questions whose context overflowed will be asked again."""
        row = {"overflow_retry": self.overflow_retries + 1}
        self.write(row)
        self.add(row)


def check_folder(folder: Path) -> None:
    """Raise `UsageError` if a folder cannot be used for a run: it must be missing, empty, or from an earlier run."""
    if folder.is_file():
        raise UsageError(f"{str(folder)!r} is a file; --output is a folder")
    if folder.is_dir() and any(folder.iterdir()) and not ((folder / FILE).exists() or (folder / LOG).exists()):
        raise UsageError(f"{str(folder)!r} is not empty, and not the folder of a run; choose another")


# The files of bfcl-eval in the folder of a run: which questions were chosen, their results, and their scores.
#
# A result is a line of JSON. The package does not ask a question again that has a result, even if the result is a
# failure. So failures, and a line that was cut off, are removed before a run is resumed.


CHOSEN = "test_case_ids_to_generate.json"
PREREQUISITE = "_prereq_"
"""Text in the id of each entry that is not a question. The conversation of such an entry only fills the memory that
later questions use."""


@dataclass(frozen=True, slots=True)
class BfclAnswer:
    """The checked answer to a question."""

    id: str
    category: str
    correct: bool
    mistake: str = ""
    """Why the answer is wrong: bfcl-eval's name for the kind of mistake, such as `value_error:string`, or
    `context_length_exceeded`."""
    error: str = ""
    """Why there is no answer, if the request failed. Such a question is asked again when the run is resumed."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0


def remove_failures(folder: Path, *, overflows: bool = False) -> set[str]:
    """Remove failed results and incomplete lines from the files of a run; return the ids of the results that remain.

    If `overflows` is true, results whose conversation did not fit into the context are removed too. If a question has
    several results, only the last is kept.
    """
    failure = _failure if overflows else _error
    ids: set[str] = set()
    for path in sorted((folder / "result").rglob("*_result.json")):
        lines = [line for line in path.read_text(encoding="utf-8", errors="replace").split("\n") if line.strip()]
        kept = {row["id"]: line for line in lines if (row := _read_row(line)) is not None and not failure(row)}
        if len(kept) < len(lines):
            part = path.with_suffix(".part")
            part.write_text("".join(f"{line}\n" for line in kept.values()), encoding="utf-8")
            part.replace(path)
        ids |= kept.keys()
    return ids


def read_answers(folder: Path) -> list[BfclAnswer]:
    """Return the answers to all chosen questions, in the order of the questions.

    If a question has no result, `error` is set in its answer.
    """
    chosen: dict[str, list[str]] = json.loads((folder / CHOSEN).read_text(encoding="utf-8"))
    results = {row["id"]: row for row in _rows(folder / "result", "*_result.json")}
    # the first line of a file of scores is a summary without an id; after it, only wrong answers have a line
    mistakes = {row["id"]: _mistake(row) for row in _rows(folder / "score", "*_score.json")}
    return [
        _answer(name, category, results.get(name), mistakes.get(name))
        for category, names in chosen.items()
        for name in names
        if PREREQUISITE not in name
    ]


def _answer(name: str, category: str, row: dict[str, Any] | None, mistake: str | None) -> BfclAnswer:
    error = "no result was written" if row is None else _error(row)
    if row is None or error:
        # the package takes an error for an answer without a call, which would be right if no call is wanted
        return BfclAnswer(name, category, correct=False, error=without_credentials(error))
    if _failure(row) == OVERFLOW:
        mistake = OVERFLOW
    return BfclAnswer(
        name,
        category,
        correct=mistake is None,
        mistake=mistake or "",
        prompt_tokens=int(_total(row.get("input_token_count"))),
        completion_tokens=int(_total(row.get("output_token_count"))),
        seconds=round(_total(row.get("latency")), 3),
    )


def _rows(folder: Path, pattern: str) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.rglob(pattern)):
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            if (row := _read_row(line)) is not None:
                yield row


def _read_row(line: str) -> dict[str, Any] | None:
    row = try_json(line)
    return row if is_object(row) and isinstance(row.get("id"), str) else None


def _error(row: dict[str, Any]) -> str:
    """Return why a question must be asked again; empty if its result is kept.

    After a context overflow, the result is kept.
    """
    failure = _failure(row)
    return "" if failure == OVERFLOW else failure


def _failure(row: dict[str, Any]) -> str:
    """Return the text of the error in a result, without the package's prefix; empty if the result is an answer."""
    result = row.get("result")
    if "traceback" in row and isinstance(result, str) and result.startswith(FAILED):
        return result.removeprefix(FAILED).strip() or "an error without a text"
    return ""


def _mistake(row: dict[str, Any]) -> str:
    error = row.get("error")
    kind = row.get("error_type") or (error.get("error_type") if is_object(error) else None)
    return kind if isinstance(kind, str) else "wrong"


def _total(value: Any) -> float:
    """Return the sum of all numbers in nested lists. A result holds a number for each request of each turn."""
    if is_array(value):
        return sum(map(_total, value))
    return float(value) if isinstance(value, int | float) else 0.0


# The result of a run as figures, and as a page in Markdown.


@dataclass(frozen=True, slots=True)
class BfclSummary:
    """The results of a run: accuracy, tokens and seconds. Questions whose requests failed count as wrong."""

    accuracy: Interval
    """The share of correct answers among all questions. Every question has the same weight, whatever its category."""
    by_category: dict[str, Interval]
    answers: Sequence[BfclAnswer]
    usage: dict[str, int]
    seconds: float
    """The sum of the times that the requests took, in seconds."""

    @property
    def failed(self) -> int:
        """The number of questions whose requests failed."""
        return sum(bool(answer.error) for answer in self.answers)

    def of(self, category: str) -> list[BfclAnswer]:
        """Return the answers in a category."""
        return [answer for answer in self.answers if answer.category == category]

    def to_dict(self) -> dict[str, Any]:
        """Return the results as a JSON object."""
        return {
            "accuracy": self.accuracy.to_dict(),
            "categories": {
                name: {**interval.to_dict(), **_counts(self.of(name))} for name, interval in self.by_category.items()
            },
            **_counts(self.answers),
            "mistakes": _mistakes(self.answers),
            "usage": self.usage,
            "seconds": round(self.seconds, 3),
        }


def summarize_answers(answers: Iterable[BfclAnswer], *, seed: int = 0) -> BfclSummary:
    """Return the results of a run from its answers (at least one). The intervals come from resampling questions."""
    every = list(answers)
    by_category: dict[str, list[float]] = {}
    for answer in every:
        by_category.setdefault(answer.category, []).append(float(answer.correct))
    return BfclSummary(
        accuracy=share_interval([float(answer.correct) for answer in every], seed=seed),
        by_category={name: share_interval(sample, seed=seed) for name, sample in by_category.items()},
        answers=every,
        usage={
            "prompt_tokens": sum(answer.prompt_tokens for answer in every),
            "completion_tokens": sum(answer.completion_tokens for answer in every),
        },
        seconds=sum(answer.seconds for answer in every),
    )


def render_bfcl_report(
    title: str, summary: BfclSummary, settings: Mapping[str, Any], replies: Mapping[str, int]
) -> str:
    """Return the Markdown report on a run; `replies` are the counts of replies in the run's log."""
    count = len(summary.answers)
    rows = [
        ("correct, of all questions, with its 95 % interval", summary.accuracy.percent()),
        ("questions", str(count)),
        ("questions that failed; they count as wrong", str(summary.failed)),
        *((f"{name}, in all and per question", _per_question(n, count)) for name, n in summary.usage.items()),
        ("seconds of requests, in all and per question", _per_question(summary.seconds, count)),
        *((f"replies {name}", str(number)) for name, number in sorted(replies.items())),
    ]
    categories = [
        (name, interval.percent(), f"{sum(answer.correct for answer in group)}/{len(group)}", str(_failed(group)))
        for name, interval in summary.by_category.items()
        for group in [summary.of(name)]
    ]
    lines = [f"# {title}", "", *table(("", "result"), rows), "", "## Categories", ""]
    lines += table(("category", "correct", "questions", "failed"), categories)
    lines += ["", *settings_section(settings)]
    lines += _counted("Wrong answers", "mistake", _mistakes(summary.answers))
    lines += _counted("Failures", "reason", Counter(clip(answer.error) for answer in summary.answers if answer.error))
    return "\n".join(lines) + "\n"


def _counted(title: str, column: str, counts: Mapping[str, int]) -> list[str]:
    if not counts:
        return []
    rows = sorted(counts.items(), key=lambda pair: -pair[1])
    return ["", f"## {title}", "", *table((column, "questions"), [(name, str(n)) for name, n in rows])]


def _per_question(total: float, questions: int) -> str:
    return f"{total:,.0f}, {total / questions:,.1f}"


def _counts(answers: Sequence[BfclAnswer]) -> dict[str, int]:
    correct = sum(answer.correct for answer in answers)
    return {"questions": len(answers), "correct": correct, "failed": _failed(answers)}


def _failed(answers: Sequence[BfclAnswer]) -> int:
    return sum(bool(answer.error) for answer in answers)


def _mistakes(answers: Sequence[BfclAnswer]) -> dict[str, int]:
    return dict(Counter(f"{answer.category}: {answer.mistake}" for answer in answers if answer.mistake))
