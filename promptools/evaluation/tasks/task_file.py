"""Files of tasks: an object in each line of JSON Lines, or in an array in `.json`, or a `[[task]]` each in `.toml`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from promptools.errors import UsageError, clip
from promptools.evaluation.tasks.answer_grading import boxed_integer
from promptools.evaluation.tasks.run_log import TaskAttempt
from promptools.evaluation.tasks.task_runner import TaskT
from promptools.json_values import is_array, is_object


@dataclass(frozen=True, slots=True)
class Task:
    """A question with its answer. `id` is the file's own, or made of the question."""

    id: str
    question: str
    answer: int

    def graded(self, attempt: TaskAttempt) -> TaskAttempt:
        """Return an attempt with the integer of its text, which is correct if it is the answer."""
        answer = boxed_integer(attempt.text)
        return replace(attempt, answer=answer, expected=self.answer, correct=answer == self.answer)


def read_tasks(*paths: Path) -> list[Task]:
    """Read files of questions: `{"question": ..., "answer": ...}`, with an `id` or without.

    Raises `UsageError` for an entry that is no task, and for two tasks with one id.
    """
    return read_task_files(paths, lambda data, where, _: _read_task(data, where))


def read_task_files(paths: Iterable[Path], read: Callable[[dict[str, Any], str, Path], TaskT]) -> list[TaskT]:
    """Read files of tasks; `read` gets an entry, where it is, for errors, and the file."""
    paths = list(paths)
    tasks: dict[str, TaskT] = {}
    for path in paths:
        for where, data in _read_entries(path):
            task = read(data, where, path)
            if task.id in tasks:
                raise UsageError(f"{where}: there is another task {task.id!r}")
            tasks[task.id] = task
    if not tasks:
        raise UsageError(f"there are no tasks in {', '.join(repr(str(path)) for path in paths)}")
    return list(tasks.values())


def task_id(data: dict[str, Any], text: str) -> str:
    """Return the `id` of an entry; without one, it is made of a text, so that it stays when lines are moved."""
    own = data.get("id")
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()[:12] if own is None else str(own)


def _read_entries(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {str(path)!r}: {error}") from error
    if path.suffix == ".toml":
        entries = _toml_entries(path, text)
    else:
        is_array_file = path.suffix == ".json" and text.lstrip().startswith("[")
        entries = _array_entries(path, text) if is_array_file else _json_entries(path, text)
    for where, data in entries:
        if not is_object(data):
            raise UsageError(f"{where}: no object")
        yield where, data


def _json_entries(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            where = f"{str(path)!r}, line {number}"
            try:
                yield where, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UsageError(f"{where}: no JSON: {error}") from error


def _array_entries(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    try:
        entries: list[Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{str(path)!r}: no JSON array: {error}") from error
    for number, entry in enumerate(entries, 1):
        yield f"{str(path)!r}, entry {number}", entry


def _toml_entries(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    import tomllib

    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{str(path)!r}: no TOML: {error}") from error
    entries = data.pop("task", [])
    if data or not is_array(entries):
        raise UsageError(f"{str(path)!r} must consist of tables [[task]]")
    for number, entry in enumerate(entries, 1):
        yield f"{str(path)!r}, task {number}", entry


def _read_task(data: dict[str, Any], where: str) -> Task:
    question = data.get("question")
    if not isinstance(question, str) or not question.strip():
        raise UsageError(f"{where}: 'question' must be a text")
    return Task(task_id(data, question), question, _read_answer(data.get("answer"), where))


def _read_answer(answer: object, where: str) -> int:
    if isinstance(answer, int) and not isinstance(answer, bool):
        return answer
    if isinstance(answer, str) and len(answer) < 1000:
        digits = answer.strip()
        if digits.removeprefix("-").isascii() and digits.removeprefix("-").isdigit():
            return int(digits)
    raise UsageError(f"{where}: 'answer' is {clip(repr(answer))}, and no integer")
