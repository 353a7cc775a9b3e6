"""Predictions for `swebench`, the command that grades them, and its report.

All names are swebench's own: `predictions.jsonl` has a prediction in each line, the harness writes its logs into
`logs/run_evaluation/RUN/MODEL/INSTANCE`, and its report is `MODEL.RUN.json` (versions 4.1 and 5.0.2).
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from promptools.errors import PromptoolsError, UsageError, clip
from promptools.evaluation.tasks.run_log import TaskAttempt
from promptools.json_values import is_array, is_object

PREDICTIONS = "predictions.jsonl"
RUN_ID = "promptools"
HARNESS = "swebench.harness.run_evaluation"


class GradingError(PromptoolsError):
    """The harness of `swebench` failed."""


@dataclass(frozen=True, slots=True)
class GradedRun:
    """What a report of `swebench` says."""

    resolved: frozenset[str]
    errors: frozenset[str]
    """Instances whose tests could not be run, or whose patch could not be applied."""


def predictions(attempts: Iterable[TaskAttempt], model: str) -> dict[str, dict[str, str]]:
    """Return the predictions by instance; attempts that failed have none, and runs without an answer an empty one."""
    return {
        attempt.task: {"instance_id": attempt.task, "model_name_or_path": model, "model_patch": attempt.text}
        for attempt in attempts
        if not attempt.error
    }


def write_predictions(folder: Path, predicted: Mapping[str, Mapping[str, str]]) -> None:
    """Write `predictions.jsonl`."""
    lines = "".join(json.dumps(prediction) + "\n" for prediction in predicted.values())
    (folder / PREDICTIONS).write_text(lines, encoding="utf-8", newline="\n")


def report_name(model: str) -> str:
    """Return the name of the report that the harness writes."""
    return f"{model.replace('/', '__')}.{RUN_ID}.json"


def grading_arguments(instances: Path, workers: int) -> list[str]:
    """Return the arguments of Python with which the harness grades, in the folder of the predictions."""
    named = {"dataset_name": instances.resolve(), "predictions_path": PREDICTIONS, "max_workers": workers}
    return ["-m", HARNESS, *(f"--{name}={value}" for name, value in named.items()), f"--run_id={RUN_ID}"]


def require_swebench() -> None:
    """Raise `UsageError` if `swebench` is not installed."""
    if importlib.util.find_spec("swebench") is None:
        raise UsageError("grading needs swebench: pip install 'promptools-compat[swe]'")


def grade(folder: Path, instances: Path, predicted: Mapping[str, Mapping[str, str]], model: str, workers: int) -> Path:
    """Let the harness grade the predictions in a folder; return its report. What it prints goes to stderr.

    It does not repeat what its logs have, so logs of other patches are refused.
    """
    if not any(prediction["model_patch"] for prediction in predicted.values()):
        raise UsageError("there is no patch to grade")
    logs = folder / "logs" / "run_evaluation" / RUN_ID / model.replace("/", "__")
    for name, prediction in predicted.items():
        graded = logs / name / "patch.diff"
        if graded.exists() and graded.read_bytes() != prediction["model_patch"].encode():
            raise UsageError(f"{str(graded)!r} is another patch than the prediction; remove {str(logs / name)!r}")
    report = folder / report_name(model)
    report.unlink(missing_ok=True)
    done = subprocess.run([sys.executable, *grading_arguments(instances, workers)], cwd=folder, check=False, stdout=2)
    if done.returncode or not report.exists():
        raise GradingError(f"swebench wrote no report and ended with {done.returncode}; its output is above")
    return report


def read_report(path: Path, predicted: Mapping[str, Mapping[str, str]]) -> GradedRun:
    """Read a report of the harness; raise `UsageError` if it is none, or not one on these predictions."""
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot read the report {str(path)!r}: {error}") from error
    submitted, resolved, errors = (_ids(data, f"{name}_ids", path) for name in ("submitted", "resolved", "error"))
    if missing := sorted(predicted.keys() - submitted):
        raise UsageError(
            f"the report {str(path)!r} lacks {len(missing)} of {len(predicted)} predictions, {clip(', '.join(missing))}"
            f"; grade {PREDICTIONS} again"
        )
    if other := sorted(name for name in resolved if not predicted.get(name, {}).get("model_patch")):
        raise UsageError(
            f"the report {str(path)!r} is on other predictions: it has {clip(', '.join(other))} as resolved, for which"
            " there is no patch here"
        )
    return GradedRun(resolved, errors)


def _ids(data: Any, name: str, path: Path) -> frozenset[str]:
    ids: Any = data.get(name) if is_object(data) else None
    if not is_array(ids) or not all(isinstance(item, str) for item in ids):
        raise UsageError(f"{str(path)!r} is not a report of swebench: it has no list {name!r}")
    return frozenset(ids)
