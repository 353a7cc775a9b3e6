"""A solver that lets an agent change a repository; the answer is the patch."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from promptools.errors import UsageError
from promptools.evaluation.swe.swe_instances import SweInstance
from promptools.evaluation.swe.work_trees import WorkTreeChanges
from promptools.evaluation.tasks.agent_solver import FinishedRun, OverflowRetries, run_to_end
from promptools.evaluation.tasks.task_runner import Solution, Unanswered
from promptools.harness.agent import Agent, trajectory
from promptools.harness.sandbox import Sandbox

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
"""Characters; what is larger is no change of code, and neither log nor grading would get on with it."""


@dataclass(frozen=True, slots=True)
class SweRun(FinishedRun):
    """A run, and what it changed."""

    patch: str = ""


@dataclass(frozen=True, slots=True)
class SweSolver:
    """Lets an agent work in a repository of its own for each instance, and writes its trajectory.

    The patch of a run that ends without an answer is in its trajectory alone.
    """

    make_agent: Callable[[Sandbox], Agent]
    """Returns an agent with tools that work in a sandbox."""
    open_workspace: Callable[[SweInstance, Path], Sandbox]
    """Gets an instance and an empty folder, puts the repository into it, and returns the sandbox in which it is the
    workspace."""
    trajectories: Path
    """The folder for `ID/ID.traj.json`."""
    prompt: str = PROMPT
    """The task, with `{problem_statement}` and `{workspace}`."""
    overflow_retries: int = 0
    """Times that a run whose context overflows is begun again, with the repository as it was."""

    def __post_init__(self) -> None:
        if PROBLEM not in self.prompt:
            raise UsageError(f"the prompt has no {PROBLEM}, where the issue is put in")

    def __call__(self, instance: SweInstance, repeat: int) -> Solution:  # noqa: ARG002
        """Return the patch, and the tokens of all runs."""
        made, retried, usage = OverflowRetries(self.overflow_retries).run(partial(self._run, instance))
        self._write(instance, made, retried)
        if made.reason:
            raise Unanswered(made.reason, usage)
        if len(made.patch) > MAX_PATCH:
            raise Unanswered(f"the patch has {len(made.patch)} characters; {MAX_PATCH} are the most", usage)
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
