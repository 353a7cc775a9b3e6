"""Files of SWE-bench instances: JSON Lines, or one JSON array, with the fields of the data set."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from promptools.errors import UsageError, clip
from promptools.evaluation.tasks.run_log import TaskAttempt
from promptools.evaluation.tasks.task_file import read_task_files

SUFFIXES = (".json", ".jsonl")
"""Of local data sets, as `swebench` reads them."""
_FORMS = {
    "instance_id": (re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*"), "a name of letters, digits, '.', '_' and '-'"),
    "repo": (re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*"), "'owner/name'"),
    "base_commit": (re.compile(r"[0-9a-f]{7,64}"), "the hash of a commit"),
    "problem_statement": (re.compile(r"(?s).*\S.*"), "a text"),
}
_IMAGE = re.compile(r"[A-Za-z0-9][^\s]*")


@dataclass(frozen=True, slots=True)
class SweInstance:
    """An issue of a repository at a commit. The fields for tests are read by `swebench` alone."""

    id: str
    repo: str
    """`owner/name`."""
    base_commit: str
    problem_statement: str
    image: str
    """The Docker image with the repository in `/testbed`: that of the file, or the one that `swebench` publishes."""

    def graded(self, attempt: TaskAttempt) -> TaskAttempt:
        """Return the attempt as it is: all attempts are graded together, after the run."""
        return attempt


def read_instances(path: Path) -> list[SweInstance]:
    """Read a file of instances; raise `UsageError` for one that lacks a field, and for two with one id."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{str(path)!r} must be called .jsonl or .json, without which swebench does not read it")
    return read_task_files([path], lambda data, where, _: _read_instance(data, where))


def published_image(instance_id: str) -> str:
    """Return the name of the image that `swebench` publishes for an instance (image_builder/image_spec.py of 5.0.2)."""
    return f"swebench/sweb.eval.x86_64.{instance_id}:latest".replace("__", "_1776_").lower()


def _read_instance(data: dict[str, Any], where: str) -> SweInstance:
    for name, (form, what) in _FORMS.items():
        value = data.get(name)
        if not isinstance(value, str) or not form.fullmatch(value):
            shown = clip(repr(value), 80) if name in data else "missing"
            raise UsageError(f"{where}: {name!r} is {shown}; it has to be {what}")
    image = data.get("image") or published_image(data["instance_id"])
    if not isinstance(image, str) or not _IMAGE.fullmatch(image):
        raise UsageError(f"{where}: 'image' is {clip(repr(image), 80)}; it has to be the name of a Docker image")
    return SweInstance(data["instance_id"], data["repo"], data["base_commit"], data["problem_statement"], image)
