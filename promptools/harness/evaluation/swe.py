"""Run SWE-bench: an agent changes a repository to resolve an issue, and the package `swebench` grades the changes."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from promptools.errors import PromptoolsError, UsageError, clip, install_command
from promptools.harness.agent import Agent, trajectory
from promptools.harness.evaluation.agent_solver import FinishedRun, OverflowRetries, run_to_end
from promptools.harness.evaluation.intervals import Interval
from promptools.harness.evaluation.swe_workspaces import WorkTreeChanges
from promptools.harness.evaluation.tasks import (
    RunSummary,
    Solution,
    TaskAttempt,
    Unanswered,
    cost_rows,
    read_task_files,
    reasons_section,
    settings_section,
    summarize,
    table,
)
from promptools.harness.sandbox import Sandbox
from promptools.json_values import is_array, is_object

# Files of SWE-bench instances: JSON lines, or a JSON array, of objects with the fields of the data set.


SUFFIXES = (".json", ".jsonl")
"""The suffixes of files that `swebench` reads as local data sets."""
_FORMS = {
    "instance_id": (re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*"), "a name of letters, digits, '.', '_' and '-'"),
    "repo": (re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*"), "'owner/name'"),
    "base_commit": (re.compile(r"[0-9a-f]{7,64}"), "the hash of a commit"),
    "problem_statement": (re.compile(r"(?s).*\S.*"), "a text"),
}
_IMAGE = re.compile(r"[A-Za-z0-9][^\s]*")


@dataclass(frozen=True, slots=True)
class SweInstance:
    """A SWE-bench task: an issue to resolve in a repository at a given commit.

    The data set also has fields about tests. They are not kept here, because only `swebench` needs them.
    """

    id: str
    repo: str
    """The repository, as `owner/name`."""
    base_commit: str
    problem_statement: str
    image: str
    """Name of the Docker image that has the repository in `/testbed`.

    If the file of instances names no image, this is the image that `swebench` publishes for the instance."""

    def graded(self, attempt: TaskAttempt) -> TaskAttempt:
        """Return the attempt unchanged, because all attempts are graded together, after the run."""
        return attempt


def read_instances(path: Path) -> list[SweInstance]:
    """Read a file of SWE-bench instances, in JSON or JSON lines.

    Raises `UsageError` for an instance with a missing or invalid field, and for two instances with the same id.
    """
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{str(path)!r} must be called .jsonl or .json, or swebench does not read it")
    return read_task_files([path], lambda data, where, _: _read_instance(data, where))


def published_image(instance_id: str) -> str:
    """Return the name of the image that `swebench` publishes for an instance.

    The rule is from `image_builder/image_spec.py` of swebench 5.0.2.
    """
    return f"swebench/sweb.eval.x86_64.{instance_id}:latest".replace("__", "_1776_").lower()


def _read_instance(data: dict[str, Any], where: str) -> SweInstance:
    for name, (form, what) in _FORMS.items():
        value = data.get(name)
        if not isinstance(value, str) or not form.fullmatch(value):
            shown = clip(repr(value), 80) if name in data else "missing"
            raise UsageError(f"{where}: {name!r} is {shown}; it has to be {what}")
    image = data.get("image") or published_image(data["instance_id"])
    if not isinstance(image, str) or not _IMAGE.fullmatch(image):
        raise UsageError(f"{where}: 'image' is {clip(repr(image), 80)}; it must be the name of a Docker image")
    return SweInstance(data["instance_id"], data["repo"], data["base_commit"], data["problem_statement"], image)


# A solver that lets an agent change a repository; the answer is the patch.


PROBLEM = "{problem_statement}"
WORKSPACE_PATH = "{workspace}"
PROMPT = f"""\
The repository of a project is in {WORKSPACE_PATH}. Change its code so that this issue is resolved:

<issue>
{PROBLEM}
</issue>

There is nobody to ask. When you have checked your change, answer with one sentence that describes it.
"""
MAX_PATCH = 16 * 2**20
"""Maximum number of characters of a patch. A longer patch contains more than a code change, and would break the log and
the grading."""


@dataclass(frozen=True, slots=True)
class SweRun(FinishedRun):
    """A run of an agent, and the changes that the agent made, as a patch."""

    patch: str = ""


@dataclass(frozen=True, slots=True)
class SweSolver:
    """A solver that lets an agent change the repository of an instance, and returns the changes as a patch.

    Each run works in a new copy of the repository. The agent's trajectory is written to a file, together with the
    patch. If a run ends without an answer, the trajectory is the only place where its patch is kept.
    """

    make_agent: Callable[[Sandbox], Agent]
    """Returns an agent whose tools work in a sandbox."""
    open_workspace: Callable[[SweInstance, Path], Sandbox]
    """Puts the repository of an instance into an empty folder, and returns a sandbox whose workspace is this folder."""
    trajectories: Path
    """The folder in which trajectories are written as `ID/ID.traj.json`."""
    prompt: str = PROMPT
    """The prompt. `{problem_statement}` is replaced by the issue, and `{workspace}` by the path of the workspace."""
    overflow_retries: int = 0
    """Maximum number of times that a run is restarted, with a new repository, because its context overflowed."""

    def __post_init__(self) -> None:
        if PROBLEM not in self.prompt:
            raise UsageError(f"the prompt has no {PROBLEM}, where the issue is put in")

    def __call__(self, instance: SweInstance, repeat: int) -> Solution:  # noqa: ARG002
        """Return the patch of the last run, and the total token usage of all runs.

        Raises `Unanswered` if the last run ended without an answer, or if the patch is too long.
        """
        made, retried, usage = OverflowRetries(self.overflow_retries).run(partial(self._run, instance))
        self._write(instance, made, retried)
        if made.reason:
            raise Unanswered(made.reason, usage)
        if len(made.patch) > MAX_PATCH:
            raise Unanswered(f"the patch has {len(made.patch)} characters; at most {MAX_PATCH} are allowed", usage)
        return Solution(made.patch, usage)

    def _run(self, instance: SweInstance) -> SweRun:
        with TemporaryDirectory(prefix="promptools-swe-", ignore_cleanup_errors=True) as temporary:
            folder = Path(temporary).resolve()
            root = folder / "testbed"
            root.mkdir()
            with closing(self.open_workspace(instance, root)) as sandbox:
                changes = WorkTreeChanges(root, folder / "first.git")
                prompt = self.prompt.replace(WORKSPACE_PATH, sandbox.workspace)
                transcript, reason = run_to_end(
                    self.make_agent(sandbox), prompt.replace(PROBLEM, instance.problem_statement)
                )
            return SweRun(transcript, reason, changes.patch())

    def _write(self, instance: SweInstance, made: SweRun, retried: int) -> None:
        config: dict[str, Any] = {
            "repo": instance.repo,
            "base_commit": instance.base_commit,
            "overflow_retries": retried,
        }
        written = trajectory(made.transcript, submission=made.patch, config=config)
        folder = self.trajectories / instance.id
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"instance_id": instance.id, **written}, ensure_ascii=False, indent=2)
        (folder / f"{instance.id}.traj.json").write_text(text, encoding="utf-8", errors="replace")


# Predictions for `swebench`, the command that grades predictions, and its report.
#
# All names are swebench's own (versions 4.1 and 5.0.2). `predictions.jsonl` has a prediction in each line. The harness
# writes its logs into `logs/run_evaluation/RUN/MODEL/INSTANCE`, and its report is `MODEL.RUN.json`.


PREDICTIONS = "predictions.jsonl"
RUN_ID = "promptools"
HARNESS = "swebench.harness.run_evaluation"


class GradingError(PromptoolsError):
    """The grading program of `swebench` failed."""


@dataclass(frozen=True, slots=True)
class GradedRun:
    """The verdicts in a report of `swebench`: the ids of resolved instances, and the ids of instances with errors."""

    resolved: frozenset[str]
    errors: frozenset[str]
    """Instances whose tests could not be run, or whose patch could not be applied."""


def predictions(attempts: Iterable[TaskAttempt], model: str) -> dict[str, dict[str, str]]:
    """Map the id of each instance to its prediction, which holds the patch that `swebench` grades.

    A failed attempt has no prediction. The prediction for a run without an answer is an empty patch.
    """
    return {
        attempt.task: {"instance_id": attempt.task, "model_name_or_path": model, "model_patch": attempt.text}
        for attempt in attempts
        if not attempt.error
    }


def write_predictions(folder: Path, predicted: Mapping[str, Mapping[str, str]]) -> None:
    """Write predictions to the file `predictions.jsonl` in the given folder."""
    lines = "".join(json.dumps(prediction) + "\n" for prediction in predicted.values())
    (folder / PREDICTIONS).write_text(lines, encoding="utf-8", newline="\n")


def report_name(model: str) -> str:
    """Return the name of the file that `swebench` writes its report to."""
    return f"{model.replace('/', '__')}.{RUN_ID}.json"


def grading_arguments(instances: Path, workers: int) -> list[str]:
    """Return the command-line arguments with which Python runs the grader of `swebench`.

    The command must be run in the folder that contains `predictions.jsonl`.
    """
    named = {"dataset_name": instances.resolve(), "predictions_path": PREDICTIONS, "max_workers": workers}
    return ["-m", HARNESS, *(f"--{name}={value}" for name, value in named.items()), f"--run_id={RUN_ID}"]


def require_swebench() -> None:
    """Raise `UsageError` if `swebench` is not installed."""
    if importlib.util.find_spec("swebench") is None:
        raise UsageError(f"grading needs swebench: {install_command('swe')}")


def grade(folder: Path, instances: Path, predicted: Mapping[str, Mapping[str, str]], model: str, workers: int) -> Path:
    """Run `swebench` to grade the predictions in a folder; return the path of its report.

    The output of `swebench` goes to stderr. `swebench` skips instances that its logs show as graded. Raises
    `UsageError` if there is no patch to grade, or if the log of an instance is about a different patch, because
    `swebench` would reuse the grade of that patch. Raises `GradingError` if `swebench` fails.
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
    """Read a report of `swebench`; raise `UsageError` if the report is not about these predictions."""
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


# The result of a run on SWE-bench as figures, and as a page in Markdown.


@dataclass(frozen=True, slots=True)
class SweSummary:
    """The results of a run: the figures that every benchmark reports, and `swebench`'s verdicts on the patches."""

    run: RunSummary
    attempts: list[TaskAttempt]
    """The attempts, one for each instance. An attempt is correct if it resolves its instance."""
    graded: GradedRun | None

    @property
    def resolved(self) -> Interval | None:
        """The share of all instances that are resolved; None before grading.

        An instance without a patch is not resolved.
        """
        return self.run.accuracy if self.graded else None

    def with_result(self, result: str) -> list[str]:
        """Return the ids of the instances whose outcome is `result`, a string that the method `result` returns."""
        return [attempt.task for attempt in self.attempts if self.result(attempt) == result]

    def result(self, attempt: TaskAttempt) -> str:
        """Return the outcome of an attempt in a few words, such as `resolved`, `no change` or `not graded`."""
        if attempt.error:
            return "failed"
        if attempt.ended:
            return "no answer"
        if not attempt.text:
            return "no change"
        if self.graded is None:
            return "not graded"
        return "resolved" if attempt.correct else "error" if attempt.task in self.graded.errors else "not resolved"

    def to_dict(self) -> dict[str, Any]:
        """Return the results as a JSON object."""
        return {
            "resolved": None if self.resolved is None else self.resolved.to_dict(),
            "instances": len(self.attempts),
            "resolved_ids": self.with_result("resolved"),
            "error_ids": self.with_result("error"),
            "patches": sum(bool(attempt.text) for attempt in self.attempts),
            "no_change": len(self.with_result("no change")),
            "unanswered": self.run.unanswered,
            "failed": self.run.failed,
            "usage": self.run.usage,
            "seconds": round(self.run.seconds, 3),
        }


def summarize_swe(attempts: Iterable[TaskAttempt], graded: GradedRun | None) -> SweSummary:
    """Return the results of a run from its attempts and from `graded`, the verdicts of `swebench`.

    `graded` is None before grading. The interval comes from resampling instances.
    """
    resolved = graded.resolved if graded else frozenset[str]()
    marked = [replace(attempt, correct=attempt.task in resolved) for attempt in attempts]
    return SweSummary(summarize(marked), marked, graded)


def render_swe_report(title: str, summary: SweSummary, settings: Mapping[str, Any], how_to_grade: str) -> str:
    """Return the Markdown report on a run; `how_to_grade` says how to grade patches that have not been graded."""
    figures = summary.to_dict()
    resolved = "not graded" if summary.resolved is None else summary.resolved.percent()
    rows = [
        ("resolved, of all instances, with its 95 % interval", resolved),
        ("instances", str(figures["instances"])),
        ("patches", str(figures["patches"])),
        ("answers without a change", str(figures["no_change"])),
        ("runs that ended without an answer", str(figures["unanswered"])),
        ("attempts that failed; they count as not resolved", str(figures["failed"])),
    ]
    if summary.graded is not None:
        rows.append(("patches that could not be applied or tested", str(len(figures["error_ids"]))))
    lines = [f"# {title}", "", *table(("", "result"), rows + cost_rows(summary.run))]
    if summary.graded is None and figures["patches"]:
        lines += ["", how_to_grade]
    lines += ["", *settings_section(settings), "", "## Instances", ""]
    entries = [(attempt.task, summary.result(attempt), _size(attempt.text)) for attempt in summary.attempts]
    lines += table(("instance", "result", "lines of the patch"), entries)
    return "\n".join([*lines, *reasons_section(summary.attempts)]) + "\n"


def _size(patch: str) -> str:
    return f"{patch.count(chr(10))}" if patch else ""
