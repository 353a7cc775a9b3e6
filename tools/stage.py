"""Run the tests against something real that is installed apart from the project.

    python tools/stage.py ollama vllm [ARGUMENTS OF PYTEST]

Installs each named environment first (see `environments.py`), then runs the tests with its mark, in the folders of
`FOLDERS`. If an environment cannot be installed, a line says why, and its tests are skipped; with
PROMPTOOLS_E2E=required, as in CI, that is a failure.

The tests are distributed over several processes. If there are servers, there is one process more than there are cores,
so that tests run while a vLLM boots, which takes a minute.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import environments
from recipes.recipe import CannotMakeError

ROOT = Path(__file__).parents[1]
VOCABULARY = "o200k"
SERVERS = "tests/e2e"
"""Tests against servers."""
INTEGRATIONS = "tests/integrations"
"""Tests with real clients and frameworks, marked by the environment that they need."""
AGENTS = ("opencode", "codex", "claude-code")
"""Environments of coding agents."""
MAJORS = ("openai-1", "openai-2", "openai-3")
"""Environments with one major of openai each."""
FOLDERS = {
    VOCABULARY: "tests/harmony tests/cli tests/test_tool_tokens.py",
    "bfcl": "tests/harness/evaluation",
    "bubblewrap": "tests/harness/sandbox tests/harness/toolsets",
    "chromium": "tests/proxy",
    "dataframes": "tests/batch",
    "deploy-lint": "tests/deploy",
    "mini-swe-agent": "tests/harness/agent",
    "ray": "tests/batch",
    "redis": "tests/proxy",
    "swebench": "tests/harness/evaluation",
    **dict.fromkeys(AGENTS, INTEGRATIONS),
    **dict.fromkeys(MAJORS, "tests/majors"),
}
"""The folders with the tests that need an environment. The function `folder` returns those of all other
environments."""
UP_TO_THE_SYSTEM = frozenset({"bubblewrap"})
"""Environments that a machine may forbid, whatever is installed. Their tests are then skipped, even if all others are
required."""


def main(names: Sequence[str], arguments: Sequence[str]) -> int:
    """Install the environments `names`, run their tests, and return the exit status."""
    available: list[str] = []
    for name in names:
        try:
            environments.path_of(name)
        except CannotMakeError as error:
            if os.environ.get("PROMPTOOLS_E2E") == "required" and name not in UP_TO_THE_SYSTEM:
                print(f"== FAILED: {name} cannot be installed, and PROMPTOOLS_E2E asks for it: {error}", flush=True)
                return environments.UNAVAILABLE
            print(f"== SKIPPED: no test ran against a real {name}: {error}", flush=True)
        else:
            available.append(name)
    if not available:
        return 0
    # collecting all tests would take longer than some of these
    folders = dict.fromkeys(folder(name) for name in available)
    marks = " or ".join(dict.fromkeys(map(mark, available)))
    chosen = ["-o", f"testpaths={' '.join(folders)}", "-m", marks, "-n", processes(folders), "--dist", "loadgroup"]
    command = [sys.executable, "-m", "pytest", *chosen, *arguments]
    # a model that another run has left here is not asked as well
    models = [name.removeprefix("model-") for name in available if name.startswith("model-")]
    asked = {"PROMPTOOLS_MODELS": " ".join(models)} if models else {}
    return subprocess.run(command, check=False, cwd=ROOT, env=os.environ | asked).returncode


def processes(folders: Iterable[str]) -> str:
    """Return how many processes run the tests of `folders`: one more than there are cores if tests wait for servers.

    A server that boots, hangs or is away keeps a process waiting, but keeps no core busy.
    """
    return str((os.cpu_count() or 1) + 1) if SERVERS in folders else "auto"


def folder(name: str) -> str:
    """Return the folders of the tests that need the environment `name`."""
    if name.startswith("model-"):
        return "tests/models"
    return INTEGRATIONS if name.startswith("frameworks-") else FOLDERS.get(name, SERVERS)


def mark(name: str) -> str:
    """Return the mark of the tests that need the environment `name`."""
    if name == VOCABULARY:
        return "oracle"
    if name in MAJORS:
        return "majors"
    return "models" if name.startswith("model-") else name


def split_arguments(words: list[str]) -> tuple[list[str], list[str]]:
    """Split a command line into the names, which come first, and the arguments of pytest."""
    count = next((at for at, argument in enumerate(words) if argument not in environments.ENVIRONMENTS), len(words))
    return words[:count], words[count:]


if __name__ == "__main__":
    sys.exit(main(*split_arguments(sys.argv[1:])))
