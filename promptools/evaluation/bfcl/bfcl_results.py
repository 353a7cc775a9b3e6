"""The files of bfcl-eval in the folder of a run: which questions were chosen, their results, and their scores.

A result is a line of JSON. The package skips questions that have one, whatever is in it: what failed, and a line that
was cut off, are removed before a run goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from promptools.errors import without_credentials
from promptools.evaluation.bfcl.bfcl_worker import FAILED, OVERFLOW
from promptools.json_values import is_array, is_object

CHOSEN = "test_case_ids_to_generate.json"
PREREQUISITE = "_prereq_"
"""In the ids of conversations that fill the memory, and are no questions."""


@dataclass(frozen=True, slots=True)
class BfclAnswer:
    """The answer to one question, checked."""

    id: str
    category: str
    correct: bool
    mistake: str = ""
    """The package's kind of mistake, as `value_error:string`, if the answer is wrong; or `context_length_exceeded`."""
    error: str = ""
    """What failed; such a question is asked again when the run goes on."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0


def remove_failures(folder: Path, *, overflows: bool = False) -> set[str]:
    """Remove results that are errors, and lines that were cut off, from the files of a run; return the ids of others.

    `overflows` removes those whose conversation did not fit into the context, too. Of several results of one question,
    the last one stays.
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
    """Return the answers to all questions that were chosen, in their order; one without a result has failed."""
    chosen: dict[str, list[str]] = json.loads((folder / CHOSEN).read_text(encoding="utf-8"))
    results = {row["id"]: row for row in _rows(folder / "result", "*_result.json")}
    # the first line of a file of scores is a summary, without an id; only wrong answers have lines
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
        # the package takes an error for an answer without a call, which is right where no call is wanted
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
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if is_object(row) and isinstance(row.get("id"), str) else None


def _error(row: dict[str, Any]) -> str:
    """Return why a question is to be asked again; empty if it has a result."""
    failure = _failure(row)
    return "" if failure == OVERFLOW else failure


def _failure(row: dict[str, Any]) -> str:
    """Return the error that a result is, without its beginning; empty if it is none."""
    result = row.get("result")
    if "traceback" in row and isinstance(result, str) and result.startswith(FAILED):
        return result.removeprefix(FAILED).strip() or "an error without a text"
    return ""


def _mistake(row: dict[str, Any]) -> str:
    error = row.get("error")
    kind = row.get("error_type") or (error.get("error_type") if is_object(error) else None)
    return kind if isinstance(kind, str) else "wrong"


def _total(value: Any) -> float:
    """Return the sum of numbers in lists: one for each request of each turn."""
    if is_array(value):
        return sum(map(_total, value))
    return float(value) if isinstance(value, int | float) else 0.0
